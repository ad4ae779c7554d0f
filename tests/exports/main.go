// exports reads what `ringmain tune export` prints as those read it for whom it is made:
//
//	exports daemonset FILE   Kubernetes' own types, strictly: an unknown field is an error
//	exports seccomp FILE     the profile as container runtimes read it, and each system call's name
//	exports objects FILE     every object of the file, strictly; those of custom resources are skipped
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

func daemonSet(text []byte) error {
	var set apps.DaemonSet
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		return err
	}
	if set.Kind != "DaemonSet" || set.APIVersion != "apps/v1" || len(set.Spec.Template.Spec.Containers) != 1 {
		return fmt.Errorf("expected a DaemonSet of apps/v1 with one container, found %s of %s with %d",
			set.Kind, set.APIVersion, len(set.Spec.Template.Spec.Containers))
	}
	labels := set.Spec.Template.Labels
	for name, value := range set.Spec.Selector.MatchLabels {
		if labels[name] != value {
			return fmt.Errorf("the selector wants %s=%s, the pods have %q", name, value, labels[name])
		}
	}
	mounts := map[string]bool{}
	for _, volume := range set.Spec.Template.Spec.Volumes {
		mounts[volume.Name] = true
	}
	for _, mount := range set.Spec.Template.Spec.Containers[0].VolumeMounts {
		if !mounts[mount.Name] {
			return fmt.Errorf("the container mounts %s, and there is no such volume", mount.Name)
		}
	}
	return nil
}

// profile is what Docker and containerd read: the runtime's rules, with the architectures in pairs.
type profile struct {
	DefaultAction   specs.LinuxSeccompAction `json:"defaultAction"`
	DefaultErrnoRet *uint                    `json:"defaultErrnoRet"`
	ArchMap         []struct {
		Arch      specs.Arch   `json:"architecture"`
		SubArches []specs.Arch `json:"subArchitectures"`
	} `json:"archMap"`
	Syscalls []specs.LinuxSyscall `json:"syscalls"`
}

func seccomp(text []byte) error {
	var read profile
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return err
	}
	if read.DefaultAction != specs.ActErrno || len(read.ArchMap) == 0 || len(read.Syscalls) == 0 {
		return fmt.Errorf("expected everything else refused, architectures and rules, found %+v", read)
	}
	for _, rule := range read.Syscalls {
		if rule.Action != specs.ActAllow || len(rule.Names) == 0 {
			return fmt.Errorf("expected rules that allow by name, found %+v", rule)
		}
	}
	return nil
}

// types of objects by their apiVersion and kind.
var types = map[string]func() any{
	"apps/v1 DaemonSet":                               func() any { return new(apps.DaemonSet) },
	"apps/v1 Deployment":                              func() any { return new(apps.Deployment) },
	"autoscaling/v2 HorizontalPodAutoscaler":          func() any { return new(autoscaling.HorizontalPodAutoscaler) },
	"networking.k8s.io/v1 NetworkPolicy":              func() any { return new(networking.NetworkPolicy) },
	"policy/v1 PodDisruptionBudget":                   func() any { return new(policy.PodDisruptionBudget) },
	"rbac.authorization.k8s.io/v1 ClusterRole":        func() any { return new(rbac.ClusterRole) },
	"rbac.authorization.k8s.io/v1 ClusterRoleBinding": func() any { return new(rbac.ClusterRoleBinding) },
	"rbac.authorization.k8s.io/v1 Role":               func() any { return new(rbac.Role) },
	"rbac.authorization.k8s.io/v1 RoleBinding":        func() any { return new(rbac.RoleBinding) },
	"v1 ConfigMap":                                    func() any { return new(core.ConfigMap) },
	"v1 Service":                                      func() any { return new(core.Service) },
	"v1 ServiceAccount":                               func() any { return new(core.ServiceAccount) },
}

var custom = []string{"gateway.networking.k8s.io/", "monitoring.coreos.com/"}

func objects(text []byte) error {
	for _, document := range strings.Split("\n"+string(text), "\n---\n") {
		var head struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			return err
		}
		name := head.APIVersion + " " + head.Kind
		if head.Kind == "" || strings.HasPrefix(name, custom[0]) || strings.HasPrefix(name, custom[1]) {
			continue
		}
		object := types[name]
		if object == nil {
			return fmt.Errorf("expected an object of a known type, found %s", name)
		}
		if err := yaml.UnmarshalStrict([]byte(document), object()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: exports daemonset|seccomp|objects FILE")
	}
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	read := map[string]func([]byte) error{"daemonset": daemonSet, "seccomp": seccomp, "objects": objects}[os.Args[1]]
	if read == nil {
		log.Fatalf("expected daemonset, seccomp or objects, found %s", os.Args[1])
	}
	if err := read(text); err != nil {
		log.Fatalf("%s: %v", os.Args[2], err)
	}
}
