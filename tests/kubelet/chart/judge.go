package chart

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	admissionvalidation "k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/rbac"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	rbacvalidation "k8s.io/kubernetes/pkg/apis/rbac/validation"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	resourcevalidation "k8s.io/kubernetes/pkg/apis/resource/validation"
)

// Objects are the documents as the API's own types; a field that the API does not know, or that is there twice, is an
// error, as it is with `kubectl apply --validate=strict`.
type Objects struct {
	DaemonSets map[string]*appsv1.DaemonSet
	ConfigMap  *corev1.ConfigMap
	Account    *corev1.ServiceAccount
	Role       *rbacv1.Role
	Binding    *rbacv1.RoleBinding
	// Verification is the job that ends an installation.
	Verification *batchv1.Job
	// Dra is what the DRA driver has beside its DaemonSet.
	Dra Dra
	// Compatibility is what changes pods that are created, with its binding.
	Compatibility        *admissionv1.MutatingAdmissionPolicy
	CompatibilityBinding *admissionv1.MutatingAdmissionPolicyBinding
}

// Dra is the DRA driver's account, what it may do in the whole cluster, and the class of its devices.
type Dra struct {
	Account       *corev1.ServiceAccount
	Role          *rbacv1.ClusterRole
	Binding       *rbacv1.ClusterRoleBinding
	Policy        *admissionv1.ValidatingAdmissionPolicy
	PolicyBinding *admissionv1.ValidatingAdmissionPolicyBinding
	Class         *resourcev1.DeviceClass
}

// Judge reads the documents and says what the API server would have against them.
func Judge(documents []string) (*Objects, error) {
	strict := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	objects := &Objects{DaemonSets: map[string]*appsv1.DaemonSet{}}
	for _, document := range documents {
		object, kind, err := strict.Decode([]byte(document), nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, document)
		}
		if err := validate(object); err != nil {
			return nil, fmt.Errorf("%s: %w", kind.Kind, err)
		}
		if err := objects.add(object); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

func (o *Objects) add(object runtime.Object) error {
	switch object := object.(type) {
	case *appsv1.DaemonSet:
		o.DaemonSets[object.Labels["app.kubernetes.io/component"]] = object
	case *corev1.ConfigMap:
		o.ConfigMap = object
	case *corev1.ServiceAccount:
		if strings.HasSuffix(object.Name, "-dradriver") {
			o.Dra.Account = object
		} else {
			o.Account = object
		}
	case *batchv1.Job:
		o.Verification = object
	case *rbacv1.ClusterRole:
		o.Dra.Role = object
	case *rbacv1.ClusterRoleBinding:
		o.Dra.Binding = object
	case *admissionv1.ValidatingAdmissionPolicy:
		o.Dra.Policy = object
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		o.Dra.PolicyBinding = object
	case *admissionv1.MutatingAdmissionPolicy:
		o.Compatibility = object
	case *admissionv1.MutatingAdmissionPolicyBinding:
		o.CompatibilityBinding = object
	case *resourcev1.DeviceClass:
		o.Dra.Class = object
	case *rbacv1.Role:
		o.Role = object
	case *rbacv1.RoleBinding:
		o.Binding = object
	default:
		return fmt.Errorf("nobody expects a %T in this chart", object)
	}
	return nil
}

// validate fills in the API's defaults and asks its own validation.
func validate(object runtime.Object) error {
	complete := object.DeepCopyObject()
	legacyscheme.Scheme.Default(complete)
	internal, err := legacyscheme.Scheme.ConvertToVersion(complete, runtime.InternalGroupVersioner)
	if err != nil {
		return err
	}
	var found field.ErrorList
	switch internal := internal.(type) {
	case *apps.DaemonSet:
		options := pod.GetValidationOptionsFromPodTemplate(&internal.Spec.Template, nil)
		found = appsvalidation.ValidateDaemonSet(internal, options)
	case *core.ConfigMap:
		found = corevalidation.ValidateConfigMap(internal)
	case *core.ServiceAccount:
		found = corevalidation.ValidateServiceAccount(internal)
	case *batch.Job:
		// As a template: the API server makes a job's selector and labels.
		template := &batch.JobTemplateSpec{ObjectMeta: internal.ObjectMeta, Spec: internal.Spec}
		options := pod.GetValidationOptionsFromPodTemplate(&internal.Spec.Template, nil)
		found = batchvalidation.ValidateJobTemplateSpec(template, field.NewPath("job"), options)
	case *admissionregistration.ValidatingAdmissionPolicy:
		found = admissionvalidation.ValidateValidatingAdmissionPolicy(internal)
	case *admissionregistration.ValidatingAdmissionPolicyBinding:
		found = admissionvalidation.ValidateValidatingAdmissionPolicyBinding(internal)
	case *admissionregistration.MutatingAdmissionPolicy:
		found = admissionvalidation.ValidateMutatingAdmissionPolicy(internal)
	case *admissionregistration.MutatingAdmissionPolicyBinding:
		found = admissionvalidation.ValidateMutatingAdmissionPolicyBinding(internal)
	case *resource.DeviceClass:
		found = resourcevalidation.ValidateDeviceClass(internal)
	case *rbac.ClusterRole:
		found = rbacvalidation.ValidateClusterRole(internal, rbacvalidation.ClusterRoleValidationOptions{})
	case *rbac.ClusterRoleBinding:
		found = rbacvalidation.ValidateClusterRoleBinding(internal)
	case *rbac.Role:
		found = rbacvalidation.ValidateRole(internal)
	case *rbac.RoleBinding:
		found = rbacvalidation.ValidateRoleBinding(internal)
	}
	return found.ToAggregate()
}
