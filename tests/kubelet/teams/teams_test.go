package teams

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"tranche.dev/tests/kubelet/chart"
)

// milli is what quotas are counted in.
const milli corev1.ResourceName = "tranche.dev/milligpus"

func text(t *testing.T, name string) string {
	t.Helper()
	text, err := File(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func read(t *testing.T) *Cluster {
	t.Helper()
	cluster, err := Read(text(t, "queues.yaml") + "\n---\n" + text(t, "jobs.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// worth is how many thousandths of a GPU one of each resource is.
func worth(t *testing.T) map[corev1.ResourceName]int64 {
	t.Helper()
	var config configuration
	if err := yaml.UnmarshalStrict([]byte(text(t, "kueue-config.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	if config.Kind != "Configuration" || len(config.FairSharing.PreemptionStrategies) == 0 {
		t.Errorf("shares are not fair: %+v", config)
	}
	found := map[corev1.ResourceName]int64{}
	for _, one := range config.Resources.Transformations {
		output, counted := one.Outputs[milli]
		if _, twice := found[one.Input]; twice || !counted || len(one.Outputs) != 1 || one.Strategy != "Replace" {
			t.Errorf("%s counts as %v", one.Input, one.Outputs)
		}
		found[one.Input] = output.Value()
	}
	return found
}

func TestQueuesNameWhatIsThere(t *testing.T) {
	cluster := read(t)
	for name, queue := range cluster.queues {
		if queue.Spec.CohortName != "teams" || queue.Spec.Preemption.ReclaimWithinCohort != "Any" {
			t.Errorf("%s gives nothing and gets nothing back: %+v", name, queue.Spec)
		}
		for _, group := range queue.Spec.ResourceGroups {
			for _, one := range group.Flavors {
				if _, there := cluster.flavors[one.Name]; !there {
					t.Errorf("%s has the flavor %s, which is not there", name, one.Name)
				}
				if len(one.Resources) != len(group.CoveredResources) || one.Resources[0].Name != group.CoveredResources[0] {
					t.Errorf("%s covers %v and has %v", name, group.CoveredResources, one.Resources)
				}
			}
		}
	}
	for name, local := range cluster.local {
		queue, there := cluster.queues[local.Spec.ClusterQueue]
		namespace := cluster.namespaces[local.Namespace]
		if !there || namespace == nil {
			t.Errorf("%s leads to %q, in a namespace %v", name, local.Spec.ClusterQueue, namespace)
			continue
		}
		for other, namespace := range cluster.namespaces {
			selector, err := metav1.LabelSelectorAsSelector(&queue.Spec.NamespaceSelector)
			if err != nil {
				t.Fatal(err)
			}
			if lets := selector.Matches(labels.Set(namespace.Labels)); lets != (other == local.Namespace) {
				t.Errorf("%s lets %s in: %v", queue.Name, other, lets)
			}
		}
	}
}

func TestQuotasAreThePublishedOnes(t *testing.T) {
	cluster, sum := read(t), int64(0)
	for team, gpus := range map[string]int64{"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8} {
		queue := cluster.queues[team]
		quota := queue.Spec.ResourceGroups[0].Flavors[0].Resources[0]
		if quota.Name != milli || quota.NominalQuota.Value() != gpus*1000 || queue.Spec.FairSharing.Weight.Value() != gpus {
			t.Errorf("%s has %+v and weighs %v, instead of %d GPUs", team, quota, queue.Spec.FairSharing.Weight, gpus)
		}
		sum += quota.NominalQuota.Value()
	}
	if sum != 16000 || len(cluster.queues) != 4 {
		t.Errorf("%d queues have %d thousandths", len(cluster.queues), sum)
	}
}

func TestEachJobHasAQueueAndTogetherTheyFillTheGpus(t *testing.T) {
	cluster, worth, wanted := read(t), worth(t), map[string]int64{}
	for _, job := range cluster.jobs {
		queue := job.Namespace + "/" + job.Labels["kueue.x-k8s.io/queue-name"]
		if _, there := cluster.local[queue]; !there {
			t.Errorf("%s waits in %s, which is not there", job.Name, queue)
		}
		if _, there := cluster.priorities[job.Labels["kueue.x-k8s.io/priority-class"]]; !there {
			t.Errorf("%s has a priority that is not there: %v", job.Name, job.Labels)
		}
		if job.Spec.Suspend == nil || !*job.Spec.Suspend {
			t.Errorf("%s does not wait to be admitted", job.Name)
		}
		for resource, count := range job.Spec.Template.Spec.Containers[0].Resources.Limits {
			each, counted := worth[resource]
			if !counted {
				t.Errorf("%s asks for %s, which counts as nothing", job.Name, resource)
			}
			wanted[job.Namespace] += each * count.Value()
		}
	}
	want := map[string]int64{"team-a": 4000, "team-b": 4000, "team-c": 4000, "team-d": 4000}
	if fmt.Sprint(wanted) != fmt.Sprint(want) || len(cluster.jobs) != 13 {
		t.Errorf("%d jobs want %v, instead of 13 that want %v", len(cluster.jobs), wanted, want)
	}
}

// profile is a size that pods can request.
type profile struct {
	Name     string
	Fraction float64
}

func TestWhatIsCountedIsWhatIsOffered(t *testing.T) {
	var offered struct {
		Profiles []profile
		Dra      struct{ Profiles []profile }
	}
	for _, name := range []string{"values.yaml", "values-claims.yaml"} {
		values := text(t, name)
		documents, err := chart.Render(values)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := chart.Judge(documents); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(values), &offered); err != nil {
			t.Fatal(err)
		}
	}
	want := worth(t)
	for which, profiles := range map[string][]profile{"plugin": offered.Profiles, "DRA driver": offered.Dra.Profiles} {
		found := map[corev1.ResourceName]int64{}
		for _, profile := range profiles {
			found[corev1.ResourceName("tranche.dev/"+profile.Name)] = int64(profile.Fraction*1000 + 0.5)
		}
		if fmt.Sprint(found) != fmt.Sprint(want) {
			t.Errorf("the %s offers %v, and Kueue counts %v", which, found, want)
		}
	}
}

func TestWhatIsMisspeltOrLeadsNowhereIsNoticed(t *testing.T) {
	whole := text(t, "queues.yaml") + "\n---\n" + text(t, "jobs.yaml")
	for right, wrong := range map[string]string{
		"cohortName: teams":         "cohort: teams",
		"nominalQuota: 4000":        "nominal: 4000",
		"restartPolicy: Never":      "restartPolicy: Sometimes",
		"suspend: true":             "suspended: true",
		"kind: LocalQueue":          "kind: Queue",
		"metadata: {name: team-a}":  "metadata: {name: team-b}",
		"limits: {tranche.dev/gpu:": "limits: {tranche.dev/gpu: 1.5, tranche.dev/other:",
	} {
		if !strings.Contains(whole, right) {
			t.Errorf("nobody says %q", right)
		}
		if _, err := Read(strings.Replace(whole, right, wrong, 1)); err == nil {
			t.Errorf("%q passes", wrong)
		}
	}
	if _, err := Read(whole); err != nil {
		t.Error(err)
	}
}
