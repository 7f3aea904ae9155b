//! System calls that no program in the sandbox may make.
//!
//! The browser has a filter of its own for pages; this one is for the browser itself, should it be
//! taken over. It names what is refused rather than what is allowed, because a list of what a browser
//! needs breaks with every new one, and what it takes away are doors into the kernel that no browser
//! has use for. Making user namespaces stays allowed: the browser's own sandbox is made of them.
//!
//! Source: browser specification 12.2.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Refused whatever their arguments are.
const REFUSED: [libc::c_long; 42] = [
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
];

/// Kinds of sockets that may be made; all others are refused.
const FAMILIES: [libc::c_int; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterFault {
    /// The machine is of a kind that filters are not made for.
    #[error("no system call filter for machines of kind {0}")]
    Machine(&'static str),
    /// It could not be put together.
    #[error("system call filter")]
    Made(#[source] seccompiler::BackendError),
}

/// The filter, in the form that the kernel and bubblewrap read.
///
/// # Errors
/// See [`FilterFault`].
pub fn program() -> Result<Vec<u8>, FilterFault> {
    let made = made()?;
    let bytes = made.into_iter().flat_map(|step| {
        let [c0, c1] = step.code.to_ne_bytes();
        let [k0, k1, k2, k3] = step.k.to_ne_bytes();
        [c0, c1, step.jt, step.jf, k0, k1, k2, k3]
    });
    Ok(bytes.collect())
}

fn made() -> Result<BpfProgram, FilterFault> {
    let machine = std::env::consts::ARCH;
    let target = TargetArch::try_from(machine).map_err(|_| FilterFault::Machine(machine))?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|&call| (call, Vec::new())).collect();
    let is = |argument, operation, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
    };
    let fault = FilterFault::Made;
    let others: Result<Vec<_>, _> = FAMILIES
        .iter()
        .map(|&family| is(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs())))
        .collect();
    // Of netlink only what addresses are listed with.
    let netlink = [
        is(
            0,
            SeccompCmpOp::Eq,
            u64::from(libc::AF_NETLINK.unsigned_abs()),
        ),
        is(
            2,
            SeccompCmpOp::Ne,
            u64::from(libc::NETLINK_ROUTE.unsigned_abs()),
        ),
    ];
    let netlink: Result<Vec<_>, _> = netlink.into_iter().collect();
    let sockets = [others.map_err(fault)?, netlink.map_err(fault)?];
    let sockets: Result<Vec<_>, _> = sockets.into_iter().map(SeccompRule::new).collect();
    rules.insert(libc::SYS_socket, sockets.map_err(fault)?);
    // Putting words into somebody's terminal.
    let terminal: Result<Vec<_>, _> = [libc::TIOCSTI, libc::TIOCLINUX]
        .into_iter()
        .map(|request| SeccompRule::new(vec![is(1, SeccompCmpOp::Eq, request)?]))
        .collect();
    rules.insert(libc::SYS_ioctl, terminal.map_err(fault)?);
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, target).map_err(fault)?;
    filter.try_into().map_err(fault)
}
