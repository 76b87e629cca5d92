package chart

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	psapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// rendered is the chart with these values, judged.
func rendered(t *testing.T, values string) *Objects {
	t.Helper()
	documents, err := Render(values)
	if err != nil {
		t.Fatalf("%s\ncannot be rendered: %v", values, err)
	}
	objects, err := Judge(documents)
	if err != nil {
		t.Fatalf("%s\nwould not be accepted: %v", values, err)
	}
	return objects
}

// usual are values as different people set them; the first sets nothing.
var usual = map[string]string{
	"nothing is set": "",
	"dynamic profiles": `
dynamic: true
layouts: []
profiles: [{name: a, fraction: 0.25}, {name: whole, fraction: 1}, {name: m, memoryMiB: 16384, priority: -3, latencyMs: 2.5}]`,
	"a mixed node": `
gpus: [0, GPU-00000000-0000-0000-0000-000000000001]
profiles: [{name: a, fraction: 0.5, limit: 0.75, computeMode: fair}, {name: b, fraction: 0.25, computeMode: strict}]
layouts: [{profiles: [a, a]}, {gpu: 0, profiles: [b, b, b, b]}, {model: NVIDIA A30, profiles: []}]`,
	"another distribution": `
driver: {runtimeClassName: ""}
hostPaths: {kubelet: /var/lib/k0s/kubelet}
nodeFeatures: {enabled: false}
tranched: {config: "over_cap = \"kill\"\nover_cap_grace_s = 5", appArmorProfile: ""}
devicePlugin: {config: "ignored_xids = [48]"}
imagePullSecrets: [{name: secret}]
nodeSelector: {tranche.dev/slices: "true"}
podLabels: {team: gpu}
podAnnotations: {note: "1"}
seLinuxOptions: {type: spc_t}
updateStrategy: {type: OnDelete, rollingUpdate: null}`,
	"everything is watched": `
metrics: {enabled: true, address: "[::]", daemonPort: 19464, pluginPort: 19465}
podAnnotations: {note: "1"}`,
	"nothing is told": `
events: {enabled: false}
verification: {enabled: false}`,
	"claims on other GPUs": `
gpus: [0]
dra: {enabled: true, gpus: [1, GPU-00000000-0000-0000-0000-000000000001], config: "recovery_s = 5", parameters: {computeMode: strict}}`,
	"claims alone": `
devicePlugin: {enabled: false}
dra: {enabled: true}`,
	"claims and profiles": `
devicePlugin: {enabled: false}
dra: {enabled: true, profiles: [{name: gpu-50, fraction: 0.5}, {name: gpu-33, fraction: "0.333"}], profileGpus: [0, 1], parameters: {priority: 1}}`,
}

func TestTheApiServerWouldAcceptWhatIsRendered(t *testing.T) {
	for name, values := range usual {
		t.Run(name, func(t *testing.T) {
			objects := rendered(t, values)
			adapters := map[string]int{"claims on other GPUs": 2}[name]
			if len(objects.DaemonSets) != 1+max(adapters, 1) || objects.ConfigMap == nil || objects.Account == nil {
				t.Fatalf("something is missing: %+v", objects)
			}
			if (objects.Verification != nil) != (name != "nothing is told") {
				t.Fatalf("the verification: %+v", objects.Verification)
			}
			claims := strings.HasPrefix(name, "claims")
			dra := objects.Dra
			if (dra.Role != nil && dra.Account != nil && dra.Policy != nil && dra.PolicyBinding != nil && dra.Class != nil) != claims {
				t.Fatalf("what the DRA driver has: %+v", dra)
			}
			told := name != "nothing is told" && name != "claims alone" && name != "claims and profiles"
			if (objects.Role != nil) != told || (objects.Binding != nil) != told {
				t.Fatalf("a role and its binding go with events: %+v, %+v", objects.Role, objects.Binding)
			}
		})
	}
}

func TestAFieldThatTheApiDoesNotKnowWouldBeRefused(t *testing.T) {
	documents, err := Render("")
	if err != nil {
		t.Fatal(err)
	}
	for at, document := range documents {
		documents[at] = strings.Replace(document, "hostPID:", "hostPid:", 1)
	}
	if _, err := Judge(documents); err == nil || !strings.Contains(err.Error(), "hostPid") {
		t.Fatalf("a misspelt field passed: %v", err)
	}
}

func TestValuesThatMeanNothingAreRefusedBeforeAnythingIsRendered(t *testing.T) {
	for values, said := range map[string]string{
		"profile: []":                                           "profile",
		"profiles: []":                                          "profiles",
		"profiles: [{name: a, fracton: 0.5}]":                   "fracton",
		"profiles: [{name: a}]":                                 "fraction",
		"profiles: [{name: a, fraction: 1.5}]":                  "fraction",
		"profiles: [{name: a, fraction: 0}]":                    "fraction",
		"profiles: [{name: A, fraction: 0.5}]":                  "name",
		"profiles: [{name: a, fraction: 0.5, priority: 128}]":   "priority",
		"profiles: [{name: a, fraction: 0.5, latencyMs: 1}]":    "latencyMs",
		"profiles: [{name: a, fraction: 0.5, computeMode: no}]": "computeMode",
		"hostPaths: {kubelet: var/lib/kubelet}":                 "kubelet",
		"image: {pullPolicy: Sometimes}":                        "pullPolicy",
		"tranched: {replicas: 2}":                               "replicas",
		"devicePlugin: {appArmorProfile: Unconfined}":           "appArmorProfile",
		"metrics: {enabled: true, pluginPort: 0}":               "pluginPort",
		"events: {enabled: maybe}":                              "enabled",
		"driver: {cdiDevice: nvidia.com/gpu=all}":               "cdiDevice",
		"dra: {enabled: true, driverName: GPU}":                 "driverName",
		"dra: {enabled: true, parameters: {colour: red}}":       "colour",
		"dra: {enabled: true}":                                  "neither knows what the other gave away",
	} {
		if _, err := Render(values); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// violated is what a pod's template asks for beyond a level of the pod security standards.
func violated(t *testing.T, set *appsv1.DaemonSet, level psapi.Level) []string {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	template := set.Spec.Template
	standard := psapi.LevelVersion{Level: level, Version: psapi.LatestVersion()}
	var found []string
	for _, result := range evaluator.EvaluatePod(standard, &template.ObjectMeta, &template.Spec) {
		if !result.Allowed {
			found = append(found, result.ForbiddenReason)
		}
	}
	return slices.Sorted(slices.Values(found))
}

func TestNobodyHasMoreThanItNeeds(t *testing.T) {
	objects := rendered(t, "")
	// Sockets of root's, in directories of the node.
	sockets := []string{"restricted volume types", "runAsNonRoot != true", "runAsUser=0"}
	for name, more := range map[string][]string{
		"deviceplugin": {},
		// The processes of the node, a mount for each slice's limits, and a kill when told to.
		"tranched": {"forbidden AppArmor profile", "host namespaces", "unrestricted capabilities"},
	} {
		expected := slices.Sorted(slices.Values(append(more, sockets...)))
		if found := violated(t, objects.DaemonSets[name], psapi.LevelRestricted); !slices.Equal(found, expected) {
			t.Errorf("%s asks beyond the restricted standard for %q, and needs %q", name, found, expected)
		}
		template := objects.DaemonSets[name].Spec.Template.Spec
		for values, wanted := range map[string]bool{"": name == "deviceplugin", "events: {enabled: false}": false} {
			template := rendered(t, values).DaemonSets[name].Spec.Template.Spec
			if token := template.AutomountServiceAccountToken; token == nil || *token != wanted {
				t.Errorf("%s and a token for the API server, with %q: %v", name, values, token)
			}
		}
		if template.HostNetwork || template.HostIPC {
			t.Errorf("%s is on the node's network or shares its memory", name)
		}
	}
	if objects.DaemonSets["deviceplugin"].Spec.Template.Spec.HostPID {
		t.Error("deviceplugin sees the node's processes")
	}
}

func TestAllThatTheAccountMayDoIsToCreateEventsOfNodes(t *testing.T) {
	objects := rendered(t, "")
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}}}
	if !reflect.DeepEqual(objects.Role.Rules, want) || objects.Role.Namespace != "default" {
		t.Errorf("in %q it may %+v", objects.Role.Namespace, objects.Role.Rules)
	}
	subject, role := objects.Binding.Subjects[0], objects.Binding.RoleRef
	if subject.Name != objects.Account.Name || subject.Namespace != objects.Account.Namespace ||
		role.Name != objects.Role.Name || objects.Binding.Namespace != objects.Role.Namespace {
		t.Errorf("%+v does not give %+v to the account", objects.Binding, objects.Role)
	}
}

func TestTheDraDriverReadsClaimsAndWritesItsOwnNodesGpus(t *testing.T) {
	objects := rendered(t, usual["claims alone"])
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: []string{"get", "list", "create", "update", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
	}
	dra := objects.Dra
	if !reflect.DeepEqual(dra.Role.Rules, want) {
		t.Errorf("it may %+v", dra.Role.Rules)
	}
	subject := dra.Binding.Subjects[0]
	if subject.Name != dra.Account.Name || subject.Namespace != dra.Account.Namespace || dra.Binding.RoleRef.Name != dra.Role.Name {
		t.Errorf("%+v does not give %+v to the account", dra.Binding, dra.Role)
	}
	user := fmt.Sprintf("system:serviceaccount:%s:%s", dra.Account.Namespace, dra.Account.Name)
	if condition := dra.Policy.Spec.MatchConditions[0].Expression; !strings.Contains(condition, user) {
		t.Errorf("the policy is about %s", condition)
	}
	if dra.PolicyBinding.Spec.PolicyName != dra.Policy.Name {
		t.Errorf("%+v binds another policy than %s", dra.PolicyBinding, dra.Policy.Name)
	}
	sockets := []string{"restricted volume types", "runAsNonRoot != true", "runAsUser=0"}
	set := objects.DaemonSets["dradriver"]
	if found := violated(t, set, psapi.LevelRestricted); !slices.Equal(found, sockets) {
		t.Errorf("it asks beyond the restricted standard for %q", found)
	}
	if set.Spec.Template.Spec.ServiceAccountName != dra.Account.Name {
		t.Errorf("it runs as %s", set.Spec.Template.Spec.ServiceAccountName)
	}
}

func TestPodsAreChangedOnlyWhereItIsEnabled(t *testing.T) {
	if plain := rendered(t, ""); plain.Compatibility != nil || plain.CompatibilityBinding != nil {
		t.Error("pods are changed, and nobody enabled it")
	}
	for _, values := range []string{
		"compatibility: {enabled: true, gpuMemoryMiB: 16384}",
		"compatibility: {enabled: true, gpuMemoryMiB: 16384, plain: gpu-20, namespaceSelector: {matchLabels: {team: a}}}",
		"compatibility: {enabled: true, gpuMemoryMiB: 81559, plain: whole}\ndevicePlugin: {enabled: false}\n" +
			"dra: {enabled: true, profiles: [{name: whole, fraction: 1}, {name: a, fraction: 0.08}]}",
	} {
		objects := rendered(t, values)
		if objects.CompatibilityBinding.Spec.PolicyName != objects.Compatibility.Name {
			t.Errorf("%s: the binding is of another policy", values)
		}
	}
	for values, why := range map[string]string{
		"compatibility: {enabled: true}":                                                                        "gpuMemoryMiB",
		"compatibility: {enabled: true, gpuMemoryMiB: 1, plain: gpu-33}":                                        "gpu-33",
		"compatibility: {enabled: true, gpuMemoryMiB: 1}\ndevicePlugin: {enabled: false}\ndra: {enabled: true}": "profiles",
	} {
		if _, err := Render(values); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

func TestTheRuntimesPluginHasSocketsAndNoToken(t *testing.T) {
	objects := rendered(t, "nri: {enabled: true}")
	set := objects.DaemonSets["nriplugin"]
	sockets := []string{"restricted volume types", "runAsNonRoot != true", "runAsUser=0"}
	if found := violated(t, set, psapi.LevelRestricted); !slices.Equal(found, sockets) {
		t.Errorf("it asks beyond the restricted standard for %q", found)
	}
	if token := set.Spec.Template.Spec.AutomountServiceAccountToken; token == nil || *token {
		t.Error("it has a token for the API server")
	}
	if rendered(t, "").DaemonSets["nriplugin"] != nil {
		t.Error("it is there though it is not enabled")
	}
}

func TestMetricsAreReachableOnlyWhereSomebodySaidSo(t *testing.T) {
	for values, host := range map[string]string{
		"":                         "127.0.0.1",
		"metrics: {enabled: true}": "0.0.0.0",
		`metrics: {enabled: true, address: "[::]"}`: "[::]",
	} {
		objects, open := rendered(t, values), values != ""
		for name, port := range map[string]string{"tranched": "9464", "deviceplugin": "9465"} {
			toml := objects.ConfigMap.Data[name+".toml"]
			if address := fmt.Sprintf("metrics = %q\n", host+":"+port); !strings.Contains(toml, address) {
				t.Errorf("with %q %s does not serve at %s:\n%s", values, name, address, toml)
			}
			template := objects.DaemonSets[name].Spec.Template
			if said := template.Annotations["prometheus.io/port"]; open && said != port || !open && said != "" {
				t.Errorf("with %q Prometheus is sent to port %q of %s", values, said, name)
			}
			if ports := template.Spec.Containers[0].Ports; (len(ports) == 1) != open {
				t.Errorf("with %q %s has the ports %v", values, name, ports)
			}
		}
	}
}

func TestPodsAreReplacedWhenWhatTheyReadChanges(t *testing.T) {
	sum := func(values, name string) string {
		return rendered(t, values).DaemonSets[name].Spec.Template.Annotations["checksum/config"]
	}
	for name, change := range map[string]string{
		"tranched":     "tranched: {log: debug}",
		"deviceplugin": "profiles: [{name: gpu-50, fraction: 0.5}, {name: gpu-30, fraction: 0.3}, {name: gpu-20, fraction: 0.1}]",
	} {
		other := map[string]string{"tranched": "deviceplugin", "deviceplugin": "tranched"}[name]
		if sum("", name) == sum(change, name) {
			t.Errorf("%s goes on with the old configuration after: %s", name, change)
		}
		if sum("", other) != sum(change, other) {
			t.Errorf("%s is restarted though nothing changed for it: %s", other, change)
		}
	}
}

func TestThePluginAndTheDaemonUnderstandTheirConfiguration(t *testing.T) {
	bin := filepath.Join(stage(t), "bin")
	for name, values := range usual {
		data := rendered(t, values).ConfigMap.Data
		for program, file := range map[string]string{
			"tranche-deviceplugin": "deviceplugin.toml",
			"tranche-dradriver":    "dradriver.toml",
			"tranche-nriplugin":    "nriplugin.toml",
			"tranched":             "tranched.toml",
		} {
			if data[file] == "" {
				continue
			}
			path := filepath.Join(t.TempDir(), file)
			if err := os.WriteFile(path, []byte(data[file]), 0o600); err != nil {
				t.Fatal(err)
			}
			said, err := exec.Command(filepath.Join(bin, program), "--check", "--config", path).CombinedOutput()
			if err != nil {
				t.Errorf("%s: %s does not understand: %v: %s\n%s", name, program, err, said, data[file])
			}
		}
	}
}

// stage is where the programs were built to.
func stage(t *testing.T) string {
	t.Helper()
	stage := os.Getenv("TRANCHE_STAGE")
	if stage == "" {
		if os.Getenv("TRANCHE_REQUIRE") == "all" {
			t.Fatal("TRANCHE_STAGE is not set: run it through make")
		}
		t.Skip("TRANCHE_STAGE is not set: run it through make")
	}
	return stage
}
