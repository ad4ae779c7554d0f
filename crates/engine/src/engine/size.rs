//! How many workers, how many connections: from the CPUs, the descriptor limit and the settings.

use ringmain_sys::{cpu, limits as process_limits};

use super::EngineError;
use crate::config::Config;
use crate::features::Feature;
use crate::limits;
use crate::probe::Selection;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) workers: usize,
    /// The CPU of each worker; empty when they are not pinned.
    pub(super) pins: Vec<usize>,
    /// Direct descriptors in one worker's table.
    pub(super) table: u32,
    /// Connections of one worker.
    pub(super) capacity: u32,
    /// Connections of the process.
    pub(super) max_connections: u32,
}

/// What the machine offers.
pub(super) struct Machine {
    pub(super) cpus: Vec<usize>,
    pub(super) quota: Option<f64>,
    pub(super) descriptors: u64,
}

impl Size {
    pub(super) fn of(config: &Config, selection: &Selection) -> Result<Size, EngineError> {
        let raised = process_limits::raise_open_files();
        if let Err(error) = &raised {
            log::warn!("the descriptor limit stays where it is: {error}");
        }
        let (soft, _) = process_limits::open_files();
        let machine = Machine {
            cpus: cpu::allowed(),
            quota: cpu::quota(),
            descriptors: soft,
        };
        Size::plan(
            config,
            selection.features.has(Feature::DirectDescriptors),
            &machine,
        )
    }

    pub(super) fn plan(config: &Config, direct: bool, machine: &Machine) -> Result<Size, EngineError> {
        let range = |setting, expected: &str, found: String| {
            Err(EngineError::Setting {
                setting,
                expected: expected.into(),
                found,
            })
        };
        if config.workers.is_some_and(|n| n == 0 || n > limits::WORKERS) {
            let expected = format!("1 to {}", limits::WORKERS);
            return range("workers", &expected, config.workers.unwrap_or(0).to_string());
        }
        if config.max_connections == Some(0) {
            return range("max-connections", "at least 1", "0".into());
        }
        let buffers = config.receive_buffers;
        if !buffers.is_power_of_two() || buffers > 32_768 {
            return range(
                "receive-buffers",
                "a power of two up to 32768",
                buffers.to_string(),
            );
        }
        let descriptors = u32::try_from(machine.descriptors).unwrap_or(u32::MAX);
        if descriptors < limits::DESCRIPTORS_MIN {
            let expected = format!("at least {} (ulimit -n)", limits::DESCRIPTORS_MIN);
            return range("the descriptor limit", &expected, descriptors.to_string());
        }
        if let Some(cpu) = config.cpus.iter().find(|cpu| !machine.cpus.contains(cpu)) {
            let expected = format!("CPUs that this process may use: {:?}", machine.cpus);
            return range("cpus", &expected, format!("CPU {cpu}"));
        }
        let usable_cpus = match config.cpus.len() {
            0 => usable(machine),
            named => named.min(limits::WORKERS),
        };
        if direct {
            Ok(Size::direct(config, machine, usable_cpus, descriptors))
        } else {
            Ok(Size::ordinary(config, machine, usable_cpus, descriptors))
        }
    }

    /// Connections do not count against the process's limit; each worker's table has as many places.
    fn direct(config: &Config, machine: &Machine, cpus: usize, descriptors: u32) -> Size {
        let table = descriptors.min(limits::CONNECTIONS_PER_WORKER);
        let capacity = table - table.min(limits::TABLE_RESERVE).min(table / 4);
        // A tenth more than needed: the kernel's hash does not spread evenly.
        let tables = |max: u32| (f64::from(max) * 1.1 / f64::from(capacity)).ceil() as usize;
        let workers = config.workers.unwrap_or_else(|| {
            config
                .max_connections
                .map_or(cpus, |max| cpus.max(tables(max)))
                .min(limits::WORKERS)
        });
        let most = u32::try_from(workers)
            .unwrap_or(u32::MAX)
            .saturating_mul(capacity);
        Size::with(config, machine, workers, table, capacity, most)
    }

    /// Connections, listeners and all else share the process's limit.
    fn ordinary(config: &Config, machine: &Machine, cpus: usize, descriptors: u32) -> Size {
        let workers = config.workers.unwrap_or(cpus);
        let reserve = limits::DESCRIPTORS_RESERVE.min(descriptors / 4);
        let most = descriptors - reserve;
        Size::with(config, machine, workers, 1, limits::CONNECTIONS_PER_WORKER, most)
    }

    fn with(
        config: &Config,
        machine: &Machine,
        workers: usize,
        table: u32,
        capacity: u32,
        most: u32,
    ) -> Size {
        let max_connections = config.max_connections.unwrap_or(most).min(most);
        if let Some(wanted) = config.max_connections.filter(|wanted| *wanted > most) {
            log::warn!(
                "max-connections {wanted} cannot be reached: at most {most} under a limit of {} descriptors; \
                 raise `ulimit -n`{}",
                machine.descriptors,
                if table > 1 {
                    " or start more workers"
                } else {
                    " or use --engine uring"
                }
            );
        }
        let pinned = config.pin && machine.quota.is_none() && workers <= machine.cpus.len();
        let pins = if !config.cpus.is_empty() {
            config.cpus.iter().copied().cycle().take(workers).collect()
        } else if pinned {
            machine.cpus[..workers].to_vec()
        } else {
            Vec::new()
        };
        Size {
            workers,
            pins,
            table,
            capacity,
            max_connections,
        }
    }
}

/// CPUs' worth of time that the process gets.
fn usable(machine: &Machine) -> usize {
    let cpus = machine.cpus.len().max(1);
    let quota = machine.quota.map_or(cpus, |quota| quota.ceil() as usize);
    cpus.min(quota).clamp(1, limits::WORKERS)
}
