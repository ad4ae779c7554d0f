//! Whether this host is set up so that steering connections to the receiving CPU's worker can help.
//!
//! Each condition that does not hold would send most connections to a worker on another CPU, or all to
//! one worker; then steering is worse than the kernel's hash. Only looks, changes nothing. That the listeners
//! join their group in worker order is for whoever opens them.

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use crate::cpu;

/// The first condition that does not hold, as a sentence for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unmet(pub String);

/// Checks all conditions for [`crate::listen::attach_cpu_steering`] with one worker on each of `worker_cpus`,
/// in the order of their listeners. `root` is `/`, but for tests. To be called from a thread that is not
/// pinned itself.
///
/// # Errors
/// The first condition that does not hold: a network card with interrupts of its own; worker number = CPU
/// modulo workers; the process may use exactly the workers' CPUs; as many receive queues as workers; RPS off;
/// each queue's interrupt on one worker's CPU, a different one each.
pub fn check(root: &Path, interface: &str, worker_cpus: &[usize]) -> Result<(), Unmet> {
    let host = Host { root, interface };
    host.is_a_card()?;
    host.workers_match_their_cpus(worker_cpus)?;
    host.allowed_cpus_are_the_workers(worker_cpus)?;
    host.a_queue_for_each_worker(worker_cpus.len())?;
    host.rps_is_off()?;
    host.interrupts_are_spread(worker_cpus)
}

/// The host as its files describe it.
struct Host<'a> {
    root: &'a Path,
    interface: &'a str,
}

impl Host<'_> {
    fn network(&self, path: &str) -> PathBuf {
        self.root.join("sys/class/net").join(self.interface).join(path)
    }

    fn is_a_card(&self) -> Result<(), Unmet> {
        let name = self.interface;
        // ARPHRD_LOOPBACK
        match read(&self.network("type")).as_deref() {
            None => unmet(format!("there is no network interface {name}")),
            Some("772") => unmet(format!(
                "{name} is the loopback interface: it has no receive queues, and a connection's CPU would be \
                 its client's"
            )),
            Some(_) => Ok(()),
        }
    }

    /// The program computes CPU modulo workers, so that must be the worker's number.
    fn workers_match_their_cpus(&self, cpus: &[usize]) -> Result<(), Unmet> {
        let wrong = cpus
            .iter()
            .enumerate()
            .find(|&(worker, cpu)| cpu % cpus.len() != worker);
        match wrong {
            None if cpus.is_empty() => unmet("there are no pinned workers".to_owned()),
            None => Ok(()),
            Some((worker, cpu)) => unmet(format!(
                "worker {worker} runs on CPU {cpu}, but connections from CPU {cpu} would go to worker {} \
                 (CPU modulo {} workers)",
                cpu % cpus.len(),
                cpus.len()
            )),
        }
    }

    fn allowed_cpus_are_the_workers(&self, cpus: &[usize]) -> Result<(), Unmet> {
        let status = read(&self.root.join("proc/thread-self/status")).unwrap_or_default();
        let listed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let Some(allowed) = listed.and_then(cpu::parse_list) else {
            return unmet("it cannot be told which CPUs this process may use".to_owned());
        };
        if allowed == sorted(cpus) {
            return Ok(());
        }
        unmet(format!(
            "this process may use the CPUs {allowed:?}, but the workers run on {:?}",
            sorted(cpus)
        ))
    }

    fn receive_queues(&self) -> Vec<PathBuf> {
        let queues = entries(&self.network("queues"));
        queues
            .into_iter()
            .filter(|path| file_name(path).starts_with("rx-"))
            .collect()
    }

    fn a_queue_for_each_worker(&self, workers: usize) -> Result<(), Unmet> {
        let (name, queues) = (self.interface, self.receive_queues().len());
        if queues == workers {
            return Ok(());
        }
        unmet(format!(
            "{name} has {queues} receive queues for {workers} workers; if the card can, set them equal: \
             ethtool -L {name} combined {workers}"
        ))
    }

    fn rps_is_off(&self) -> Result<(), Unmet> {
        for queue in self.receive_queues() {
            let file = queue.join("rps_cpus");
            let mask = read(&file).unwrap_or_default();
            if mask.contains(|c: char| c != '0' && c != ',') {
                return unmet(format!(
                    "receive packet steering moves packets of {} {} to other CPUs; turn it off: \
                     echo 0 > {}",
                    self.interface,
                    file_name(&queue),
                    file.display()
                ));
            }
        }
        Ok(())
    }

    fn interrupts_are_spread(&self, cpus: &[usize]) -> Result<(), Unmet> {
        let name = self.interface;
        let interrupts = self.receive_interrupts();
        if interrupts.len() != cpus.len() {
            return unmet(format!(
                "it cannot be told which interrupts serve the {} receive queues of {name}: {} look like it",
                cpus.len(),
                interrupts.len()
            ));
        }
        let mut served = Vec::new();
        for interrupt in &interrupts {
            let affinity = effective_affinity(interrupt).unwrap_or_default();
            let [cpu] = affinity[..] else {
                return unmet(format!(
                    "interrupt {} of {name} is served by the CPUs {affinity:?} instead of one; stop irqbalance \
                     and write one CPU to its smp_affinity_list",
                    file_name(interrupt)
                ));
            };
            served.push(cpu);
        }
        if sorted(&served) == sorted(cpus) {
            return Ok(());
        }
        unmet(format!(
            "the interrupts of {name} are served by the CPUs {:?}, but the workers run on {:?}; stop irqbalance \
             and give each worker's CPU one interrupt",
            sorted(&served),
            sorted(cpus)
        ))
    }

    /// The `/proc/irq` directories of the card's interrupts that bring packets.
    fn receive_interrupts(&self) -> Vec<PathBuf> {
        // A virtio device has its interrupts with the PCI device above it.
        let own = [
            self.network("device/msi_irqs"),
            self.network("device/../msi_irqs"),
        ];
        let numbers = own
            .iter()
            .map(|path| entries(path))
            .find(|found| !found.is_empty());
        let directories = numbers
            .unwrap_or_default()
            .into_iter()
            .map(|path| self.root.join("proc/irq").join(file_name(&path)));
        directories
            .filter(|irq| entries(irq).iter().any(|path| brings_packets(path)))
            .collect()
    }
}

/// An interrupt's directory holds one directory for each handler, named after it. There is no common scheme:
/// `eth0-TxRx-0` (Intel, ENA), `virtio2-input.0`, `mlx5_comp0@pci:…`. What is not known is not counted.
fn brings_packets(handler: &Path) -> bool {
    let name = file_name(handler).to_ascii_lowercase();
    handler.is_dir() && ["rx", "input", "comp"].iter().any(|part| name.contains(part))
}

fn effective_affinity(interrupt: &Path) -> Option<Vec<usize>> {
    let file = |name| read(&interrupt.join(name)).filter(|text| !text.is_empty());
    cpu::parse_list(&file("effective_affinity_list").or_else(|| file("smp_affinity_list"))?)
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> = found.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn read(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
}

fn sorted(cpus: &[usize]) -> Vec<usize> {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus
}

fn unmet(sentence: String) -> Result<(), Unmet> {
    Err(Unmet(sentence))
}
