"""Names of CPUs for ``-mcpu``, as LLVM 22 knows them (``llvm_get_cpu_archlist`` of the relay and relax engines).

Engines know theirs exactly, but are asked only when a job runs. Renew these lists with LLVM; a test compares them with
the engines.
"""

from __future__ import annotations

_X86 = """
alderlake amdfam10 arrowlake arrowlake-s arrowlake_s athlon athlon-4 athlon-fx athlon-mp athlon-tbird athlon-xp
athlon64 athlon64-sse3 atom atom_sse4_2 atom_sse4_2_movbe barcelona bdver1 bdver2 bdver3 bdver4 bonnell broadwell
btver1 btver2 c3 c3-2 cannonlake cascadelake clearwaterforest cooperlake core-avx-i core-avx2 core2
core_2_duo_sse4_1 core_2_duo_ssse3 core_2nd_gen_avx core_3rd_gen_avx core_4th_gen_avx core_4th_gen_avx_tsx
core_5th_gen_avx core_5th_gen_avx_tsx core_aes_pclmulqdq core_i7_sse4_2 corei7 corei7-avx diamondrapids
emeraldrapids generic geode goldmont goldmont-plus goldmont_plus gracemont grandridge graniterapids graniterapids-d
graniterapids_d haswell i386 i486 i586 i686 icelake-client icelake-server icelake_client icelake_server ivybridge k6
k6-2 k6-3 k8 k8-sse3 knl knm lakemont lunarlake meteorlake mic_avx512 nehalem nocona novalake opteron opteron-sse3
pantherlake penryn pentium pentium-m pentium-mmx pentium2 pentium3 pentium3m pentium4 pentium4m pentium_4
pentium_4_sse3 pentium_ii pentium_iii pentium_iii_no_xmm_regs pentium_m pentium_mmx pentium_pro pentiumpro prescott
raptorlake rocketlake sandybridge sapphirerapids sierraforest silvermont skx skylake skylake-avx512 skylake_avx512
slm tigerlake tremont westmere wildcatlake winchip-c6 winchip2 x86-64 x86-64-v2 x86-64-v3 x86-64-v4 yonah znver1
znver2 znver3 znver4 znver5
"""
_AARCH64 = """
a64fx ampere1 ampere1a ampere1b ampere1c apple-a10 apple-a11 apple-a12 apple-a13 apple-a14 apple-a15 apple-a16
apple-a17 apple-a7 apple-m4 apple-m5 c1-nano c1-premium c1-pro c1-ultra carmel cortex-a320 cortex-a34 cortex-a35
cortex-a510 cortex-a520 cortex-a520ae cortex-a53 cortex-a55 cortex-a57 cortex-a65 cortex-a65ae cortex-a710
cortex-a715 cortex-a72 cortex-a720 cortex-a720ae cortex-a725 cortex-a73 cortex-a75 cortex-a76 cortex-a76ae
cortex-a77 cortex-a78 cortex-a78ae cortex-a78c cortex-r82 cortex-r82ae cortex-x1 cortex-x1c cortex-x2 cortex-x3
cortex-x4 cortex-x925 exynos-m3 exynos-m4 exynos-m5 falkor fujitsu-monaka gb10 generic grace kryo neoverse-512tvb
neoverse-e1 neoverse-n1 neoverse-n2 neoverse-n3 neoverse-v1 neoverse-v2 neoverse-v3 neoverse-v3ae olympus oryon-1
saphira thunderx thunderx2t99 thunderx3t110 thunderxt81 thunderxt83 thunderxt88 tsv110
"""
_ARM = """
arm1020e arm1020t arm1022e arm10e arm10tdmi arm1136j-s arm1136jf-s arm1156t2-s arm1156t2f-s arm1176jz-s arm1176jzf-s
arm710t arm720t arm7tdmi arm7tdmi-s arm8 arm810 arm9 arm920 arm920t arm922t arm926ej-s arm940t arm946e-s arm966e-s
arm968e-s arm9e arm9tdmi cortex-a12 cortex-a15 cortex-a17 cortex-a32 cortex-a35 cortex-a5 cortex-a510 cortex-a53
cortex-a55 cortex-a57 cortex-a7 cortex-a710 cortex-a72 cortex-a73 cortex-a75 cortex-a76 cortex-a76ae cortex-a77
cortex-a78 cortex-a78ae cortex-a78c cortex-a8 cortex-a9 cortex-m0 cortex-m0plus cortex-m1 cortex-m23 cortex-m3
cortex-m33 cortex-m35p cortex-m4 cortex-m52 cortex-m55 cortex-m7 cortex-m85 cortex-r4 cortex-r4f cortex-r5
cortex-r52 cortex-r52plus cortex-r7 cortex-r8 cortex-x1 cortex-x1c cyclone ep9312 exynos-m3 exynos-m4 exynos-m5
generic iwmmxt krait kryo mpcore mpcorenovfp neoverse-n1 neoverse-n2 neoverse-v1 sc000 sc300 star-mc1 star-mc3
strongarm strongarm110 strongarm1100 strongarm1110 swift xscale
"""
_BY_MACHINE = {
    **dict.fromkeys(("x86_64", "i686"), frozenset(_X86.split())),
    "aarch64": frozenset(_AARCH64.split()),
    **dict.fromkeys(("arm", "armv7", "armv7a", "armv7l", "armv8l"), frozenset(_ARM.split())),
}
_EVERY = frozenset[str]().union(*_BY_MACHINE.values())


def names(machine: str | None) -> frozenset[str] | None:
    """Return the CPUs of a machine, as ``targets.machine_of`` spells it, or of all for None; None for a machine whose
    CPUs are not listed."""
    return _EVERY if machine is None else _BY_MACHINE.get(machine)
