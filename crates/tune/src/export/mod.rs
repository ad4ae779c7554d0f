//! A plan in the forms in which hosts keep it: sysctl.d, a unit of systemd, a DaemonSet of Kubernetes; and a profile of
//! system calls.
//!
//! Text only. What is no sysctl is done by `ringmain tune apply --hold` itself, which takes it back when it is ended.

mod seccomp;

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::audit::Wish;
use crate::host::Asked;
use crate::plan::Planned;

pub use self::seccomp::{CALLS, seccomp};

/// What the command line of the exported tuner says.
#[derive(Clone, Debug)]
pub struct Command<'a> {
    /// What is wanted.
    pub wish: &'a Wish,
    /// The service.
    pub asked: &'a Asked,
    /// The steps that are planned.
    pub plan: &'a [Planned],
}

impl Command<'_> {
    /// Its words, without the program: only the steps of the plan, so that nothing else is done on another day.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut words = vec!["tune".to_owned(), "apply".into(), "--hold".into()];
        let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        option("profile", format!("{:?}", self.wish.profile).to_lowercase());
        if let Some(interface) = &self.asked.interface {
            option("interface", interface.clone());
        }
        if let Some(port) = self.asked.port {
            option("port", port.to_string());
        }
        let mut steps: Vec<&str> = self.plan.iter().map(|planned| planned.step.name()).collect();
        steps.dedup();
        for step in steps {
            option("step", step.to_owned());
        }
        // What is applied was accepted then.
        let applied = self.plan.iter().filter(|planned| planned.applied);
        let accepted = applied.filter_map(|planned| planned.step.step().accept);
        for accept in self
            .wish
            .accept
            .iter()
            .copied()
            .chain(accepted)
            .collect::<BTreeSet<_>>()
        {
            option("accept", accept.to_string());
        }
        words
    }
}

/// The sysctls of a plan as a file of sysctl.d; the rest is counted.
#[must_use]
pub fn sysctl(plan: &[Planned]) -> String {
    let mut out =
        String::from("# /etc/sysctl.d/90-ringmain.conf, made by `ringmain tune export --as sysctl`\n");
    let mut others = 0;
    for planned in plan {
        let mut title = Some(planned.step.step());
        for change in &planned.changes {
            let Some(name) = change.key.sysctl_name() else {
                others += 1;
                continue;
            };
            if let Some(step) = title.take() {
                let _ = writeln!(out, "\n# {}: {} (risk {})", step.name, step.title, step.risk);
            }
            let _ = writeln!(
                out,
                "# previous value: {}\n{name} = {}",
                change.now, change.wanted
            );
        }
    }
    if others > 0 {
        let said = match others {
            1 => "1 other setting is no sysctl: `ringmain tune export --as systemd` has it.".to_owned(),
            _ => format!(
                "{others} other settings are no sysctls: `ringmain tune export --as systemd` has them."
            ),
        };
        let _ = writeln!(out, "\n# {said}");
    }
    out
}

/// A unit of systemd that applies the plan, holds it, and takes it back when it is stopped.
#[must_use]
pub fn systemd(command: &Command<'_>, program: &str) -> String {
    // Words of ours hold no space, quote or percent sign but for an interface's name, which may hold a percent sign.
    let words = command.words().join(" ").replace('%', "%%");
    format!(
        "\
# /etc/systemd/system/ringmain-tune.service, made by `ringmain tune export --as systemd`
[Unit]
Description=Settings of this host for Ringmain
Documentation=man:ringmain(1)
After=network-online.target irqbalance.service
Wants=network-online.target

[Service]
ExecStart={program} {words} --state /var/lib/ringmain-tune
# Reverts settings that a crash left before it applies them again; where that fails, it takes them over.
ExecStartPre=-{program} tune revert --state /var/lib/ringmain-tune
StateDirectory=ringmain-tune
KillSignal=SIGTERM
Restart=on-failure
ProtectHome=yes
NoNewPrivileges=yes
CapabilityBoundingSet=CAP_NET_ADMIN CAP_SYS_ADMIN CAP_AUDIT_CONTROL CAP_DAC_OVERRIDE

[Install]
WantedBy=multi-user.target
"
    )
}

/// A DaemonSet that does the same on every node.
#[must_use]
pub fn kubernetes(command: &Command<'_>, image: &str) -> String {
    let mut args = String::new();
    for word in command
        .words()
        .iter()
        .chain(&["--state".to_owned(), "/run/ringmain-tune".to_owned()])
    {
        // JSON's strings are YAML's.
        let _ = writeln!(args, "        - {}", serde_json::Value::from(word.as_str()));
    }
    let image = serde_json::Value::from(image);
    format!(
        "\
# Made by `ringmain tune export --as kubernetes`. Settings of the node belong to everything that runs on it: choose the
# nodes by a label that they get for this.
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: ringmain-tune
  namespace: kube-system
  labels:
    app.kubernetes.io/name: ringmain-tune
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: ringmain-tune
  template:
    metadata:
      labels:
        app.kubernetes.io/name: ringmain-tune
    spec:
      nodeSelector:
        ringmain.dev/tune: \"true\"
      hostNetwork: true
      hostPID: true
      terminationGracePeriodSeconds: 30
      containers:
      - name: tune
        image: {image}
        args:
{args}        securityContext:
          # /proc/sys, /sys and the card's driver are the node's.
          privileged: true
        resources:
          requests:
            cpu: 1m
            memory: 8Mi
          limits:
            memory: 32Mi
        volumeMounts:
        - name: state
          mountPath: /run/ringmain-tune
      volumes:
      - name: state
        hostPath:
          path: /run/ringmain-tune
          type: DirectoryOrCreate
"
    )
}
