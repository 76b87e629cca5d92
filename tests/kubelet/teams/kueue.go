// Package teams reads what docs/kubernetes-teams says to Kueue, and checks that it agrees with itself.
package teams

import (
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of Kueue's API, v1beta2, what is used here, transcribed: its module is not needed for that, and any other field is refused.

type flavor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		NodeLabels map[string]string `json:"nodeLabels"`
	} `json:"spec"`
}

type priorityClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Value             int32  `json:"value"`
	Description       string `json:"description"`
}

type clusterQueue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		CohortName        string               `json:"cohortName"`
		NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
		QueueingStrategy  string               `json:"queueingStrategy"`
		ResourceGroups    []struct {
			CoveredResources []v1.ResourceName `json:"coveredResources"`
			Flavors          []struct {
				Name      string  `json:"name"`
				Resources []quota `json:"resources"`
			} `json:"flavors"`
		} `json:"resourceGroups"`
		Preemption struct {
			ReclaimWithinCohort string `json:"reclaimWithinCohort"`
			WithinClusterQueue  string `json:"withinClusterQueue"`
		} `json:"preemption"`
		FairSharing struct {
			Weight resource.Quantity `json:"weight"`
		} `json:"fairSharing"`
	} `json:"spec"`
}

type quota struct {
	Name         v1.ResourceName   `json:"name"`
	NominalQuota resource.Quantity `json:"nominalQuota"`
}

type localQueue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ClusterQueue string `json:"clusterQueue"`
	} `json:"spec"`
}

type configuration struct {
	metav1.TypeMeta `json:",inline"`
	FairSharing     struct {
		PreemptionStrategies []string `json:"preemptionStrategies"`
	} `json:"fairSharing"`
	WaitForPodsReady struct {
		Timeout metav1.Duration `json:"timeout"`
	} `json:"waitForPodsReady"`
	Resources struct {
		ExcludeResourcePrefixes []string `json:"excludeResourcePrefixes"`
		Transformations         []struct {
			Input    v1.ResourceName `json:"input"`
			Strategy string          `json:"strategy"`
			Outputs  v1.ResourceList `json:"outputs"`
		} `json:"transformations"`
	} `json:"resources"`
}
