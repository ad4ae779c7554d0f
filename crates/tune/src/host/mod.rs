//! The host as far as the audit needs it: kernel, CPUs, where this process is and what it may do, interfaces with their
//! queues and interrupts, the service at hand.
//!
//! Read once from a [`Root`]. What cannot be told is `None`, never a guess. Knows not what is good.

mod interface;
mod place;
mod processes;
mod service;
#[cfg(test)]
mod tests;

pub use self::interface::{Direction, Interface, Interrupt, Kind};
pub use self::place::{Place, Right};
pub use self::processes::{Process, Processes, sentence};
pub use self::service::{Asked, Service, Thread};
use crate::cpus::Cpus;
use crate::limits;
use crate::root::Root;

/// What is known of a host.
#[derive(Debug)]
pub struct Host {
    /// The kernel's release, such as `6.1.0-13-amd64`.
    pub release: Option<String>,
    /// Its version, major and minor.
    pub kernel: Option<(u32, u32)>,
    /// The name of the CPUs.
    pub model: Option<String>,
    /// Whether a hypervisor runs it; `None` where the CPU does not say (arm64).
    pub virtual_machine: Option<bool>,
    /// Who made the machine, such as `Amazon EC2 c5n.xlarge`.
    pub machine: Option<String>,
    /// The CPUs that are online.
    pub online: Cpus,
    /// The CPUs that the service may use; those of this process where it is not known.
    pub usable: Cpus,
    /// The first thread of each core among the usable.
    pub cores: Cpus,
    /// Which start of the host this is.
    pub boot: Option<String>,
    /// The network namespace of this process.
    pub network: Option<String>,
    /// Where this process is.
    pub place: Place,
    /// Other processes, as far as they may be seen.
    pub processes: Processes,
    /// All interfaces.
    pub interfaces: Vec<Interface>,
    /// The service at hand.
    pub service: Service,
    /// The names of the interfaces that its packets come by.
    pub chosen: Vec<String>,
}

/// Why a host cannot be looked at as asked.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The interface that was named is not there.
    #[error("expected the name of a network interface; found `{name}` (known: {known})")]
    NoInterface {
        /// The name.
        name: String,
        /// Those that are there.
        known: String,
    },
    /// The process that was named is not there.
    #[error("process {0} does not exist, or is not visible from here")]
    NoProcess(u32),
    /// Nobody listens on the port that was named.
    #[error(
        "no process listens on TCP port {0} in this network namespace: start the service first, or select it with --pid"
    )]
    NoListener(u16),
}

impl Host {
    /// Looks at it.
    ///
    /// # Errors
    /// Where what was asked for is not there.
    pub fn look(root: &Root, asked: &Asked) -> Result<Host, HostError> {
        let processes = Processes::look(root);
        let service = Service::find(root, &processes, asked)?;
        let online = root
            .find("/sys/devices/system/cpu/online")
            .and_then(|text| Cpus::list(&text))
            .unwrap_or_default();
        let own = root
            .find("/proc/self/status")
            .and_then(|text| place::allowed(&text));
        let usable = match service.cpus.clone().or(own) {
            Some(cpus) => cpus.and(&online),
            None => online.clone(),
        };
        let release = root.find("/proc/sys/kernel/osrelease");
        let cpuinfo = root.find("/proc/cpuinfo").unwrap_or_default();
        let interfaces = interface::all(root);
        let chosen = chosen(root, &interfaces, &service, asked)?;
        Ok(Host {
            kernel: release.as_deref().and_then(version),
            release,
            model: field(&cpuinfo, "model name").map(str::to_owned),
            virtual_machine: field(&cpuinfo, "flags")
                .map(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor")),
            machine: machine(root),
            cores: cores(root, &usable),
            online,
            usable,
            boot: root.find("/proc/sys/kernel/random/boot_id"),
            network: root.link("/proc/self/ns/net"),
            place: Place::look(root),
            processes,
            interfaces,
            service,
            chosen,
        })
    }

    /// The interfaces that the service's packets come by.
    pub fn cards(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces
            .iter()
            .filter(|one| self.chosen.contains(&one.name))
    }

    /// Whether the kernel is of this version or later; `None` if it does not say.
    #[must_use]
    pub fn kernel_at_least(&self, major: u32, minor: u32) -> Option<bool> {
        self.kernel.map(|found| found >= (major, minor))
    }
}

/// The value of a line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut found = lines.filter(|(found, _)| found.trim() == name);
    found.next().map(|(_, value)| value.trim())
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn machine(root: &Root) -> Option<String> {
    let part = |name: &str| root.find(&format!("/sys/class/dmi/id/{name}"));
    let vendor = part("sys_vendor").filter(|text| !text.is_empty())?;
    let product = part("product_name").unwrap_or_default();
    Some(format!("{vendor} {product}").trim().to_owned())
}

/// The first thread of each core among these CPUs; all where the kernel does not tell which belong together.
fn cores(root: &Root, usable: &Cpus) -> Cpus {
    let first = |cpu: &usize| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let siblings = root.find(&path).and_then(|text| Cpus::list(&text));
        siblings.is_none_or(|siblings| siblings.and(usable).iter().next() == Some(*cpu))
    };
    usable.iter().filter(first).collect()
}

fn chosen(
    root: &Root,
    interfaces: &[Interface],
    service: &Service,
    asked: &Asked,
) -> Result<Vec<String>, HostError> {
    if let Some(name) = &asked.interface {
        if interfaces.iter().any(|one| one.name == *name) {
            return Ok(vec![name.clone()]);
        }
        let known: Vec<&str> = interfaces.iter().map(|one| one.name.as_str()).collect();
        return Err(HostError::NoInterface {
            name: name.clone(),
            known: known.join(", "),
        });
    }
    if service.is_local() {
        return Ok(Vec::new());
    }
    let routes = root.find("/proc/net/route").unwrap_or_default();
    let defaults = routes.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (name, destination) = (fields.next()?, fields.next()?);
        (destination == "00000000").then(|| name.to_owned())
    });
    let mut names: Vec<String> = defaults
        .filter(|name| interfaces.iter().any(|one| one.name == *name))
        .collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        let up = interfaces
            .iter()
            .filter(|one| one.up && one.kind != Kind::Loopback);
        names = up.map(|one| one.name.clone()).collect();
    }
    names.truncate(limits::NAMES);
    Ok(names)
}
