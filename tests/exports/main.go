// exports reads what `ringmain tune export` prints as those read it for whom it is made:
//
//	exports daemonset FILE   Kubernetes' own types, strictly: an unknown field is an error
//	exports seccomp FILE     the profile as container runtimes read it, and each system call's name
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	apps "k8s.io/api/apps/v1"
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

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: exports daemonset|seccomp FILE")
	}
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	read := map[string]func([]byte) error{"daemonset": daemonSet, "seccomp": seccomp}[os.Args[1]]
	if read == nil {
		log.Fatalf("expected daemonset or seccomp, found %s", os.Args[1])
	}
	if err := read(text); err != nil {
		log.Fatalf("%s: %v", os.Args[2], err)
	}
}
