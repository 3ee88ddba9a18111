"""Seccomp filter against system calls that no engine needs, and that could break out of the sandbox.

Without a network namespace, it also blocks Internet sockets of offline engines.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

_LOAD, _EQUAL, _GREATER_OR_EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""Opcodes of classic BPF: load a word of ``struct seccomp_data``, jumps, return."""
_NUMBER_AT, _MACHINE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
"""Offsets in ``struct seccomp_data``; of arguments the lower half, on little-endian machines."""
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_SET_FILTER, _SPECULATE = 1, 4
_X32 = 0x40000000
"""First number of x86-64's duplicate system calls with 32-bit pointers (x32)."""
_NEW_NAMESPACES = 0x7E020080
"""Any of clone(2)'s flags CLONE_NEW*."""
_LOCAL = (1, 16)
"""Address families: AF_UNIX, and AF_NETLINK, with which a process queries its own network."""
_INTERNET = (2, 10)

_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""``AUDIT_ARCH_*``."""
_CALLS = {
    # name: number on x86-64, on aarch64; -1 if missing
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "unshare": (272, 97),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    # The host uses the folders of engines, where a link could lead it elsewhere, and a pipe make it wait.
    "symlink": (88, -1),
    "symlinkat": (266, 36),
    "mknod": (133, -1),
    "mknodat": (259, 33),
}
_PERMISSION_CALLS = {
    "chmod": (90, -1),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, -1),
    "fchown": (93, 55),
    "lchown": (94, -1),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "utime": (132, -1),
    "utimes": (235, -1),
    "futimesat": (261, -1),
    "utimensat": (280, 88),
}
"""Changes of permissions, owners, attributes and times of files."""
_CLONE, _CLONE3, _SOCKET, _SECCOMP = (56, 220), (435, 435), (41, 198), (317, 277)
_PRLIMIT = (302, 261)


def set_filter(*, internet: bool, permissions: bool) -> bool:
    """Install the filter for this process and its children; returns whether it is active. Needs
    ``PR_SET_NO_NEW_PRIVS``.

    Without ``permissions``, no file's permissions, owner, attributes or times can be changed.
    """
    machine = platform.machine()
    if machine not in _MACHINES:
        return False
    column = list(_MACHINES).index(machine)
    calls = _CALLS if permissions else {**_CALLS, **_PERMISSION_CALLS}
    program = _program(_MACHINES[machine], [call[column] for call in calls.values()], column, internet=internet)
    code = ctypes.create_string_buffer(b"".join(program))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    # Before 5.16, kernels slow filtered processes down by side-channel mitigations, unless this is disabled.
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    return bool(syscall(_SECCOMP[column], _SET_FILTER, _SPECULATE, ctypes.c_char_p(header)) == 0)


def _program(machine: int, calls: list[int], column: int, *, internet: bool) -> list[bytes]:
    refused = _error(errno.EPERM)
    program = [_load(_MACHINE_AT), _jump(_EQUAL, machine, 1, 0), _return(_KILL), _load(_NUMBER_AT)]
    program += [_jump(_GREATER_OR_EQUAL, _X32, 0, 1), refused]
    for number in calls:
        if number >= 0:
            program += [_jump(_EQUAL, number, 0, 1), refused]
    # Its flags are in memory, which filters cannot read; without it, the C library uses clone.
    program += [_jump(_EQUAL, _CLONE3[column], 0, 1), _error(errno.ENOSYS)]
    program += [_jump(_EQUAL, _CLONE[column], 0, 4), _load(_FIRST_ARGUMENT_AT)]
    program += [_jump(_ANY_BIT, _NEW_NAMESPACES, 0, 1), refused, _return(_ALLOW)]
    # A limit of CPU time ends another process of the user; 0 is the process itself, as which getrlimit names it.
    program += [_jump(_EQUAL, _PRLIMIT[column], 0, 4), _load(_FIRST_ARGUMENT_AT)]
    program += [_jump(_EQUAL, 0, 1, 0), refused, _return(_ALLOW)]
    families = (*_LOCAL, *_INTERNET) if internet else _LOCAL
    program += [_jump(_EQUAL, _SOCKET[column], 0, 2 + 2 * len(families)), _load(_FIRST_ARGUMENT_AT)]
    for family in families:
        program += [_jump(_EQUAL, family, 0, 1), _return(_ALLOW)]
    return [*program, _error(errno.EACCES), _return(_ALLOW)]


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, 0, 0, offset)


def _jump(how: int, value: int, then: int, otherwise: int) -> bytes:
    """Build a jump: instructions to skip on a match, and otherwise."""
    return _instruction(how, then, otherwise, value)


def _return(value: int) -> bytes:
    return _instruction(_RETURN, 0, 0, value)


def _error(number: int) -> bytes:
    return _return(_ERROR | number)


def _instruction(code: int, then: int, otherwise: int, value: int) -> bytes:
    return struct.pack("HBBI", code, then, otherwise, value)
