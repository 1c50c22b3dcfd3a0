"""GPUs as data: how much memory each has, in figures that somebody published, and what a process takes of it
beside the tensors of PyTorch. Nothing here was measured by us."""

from __future__ import annotations

from dataclasses import dataclass

from memplan_engine.errors import InputError

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Speed:
    """What a maker states that a device does at most: `bandwidth` of its memory, bytes/s, and dense products
    of matrices in `flops32` (float32) and `flops16` (bfloat16 and float16) operations a second, and what its
    link to the host, of which `host_source` says which it is, carries in each direction, bytes/s."""

    bandwidth: float
    flops32: float
    flops16: float
    source: str
    host_bandwidth: float
    host_source: str


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One model of GPU. `nominal_bytes` is what its maker states (decimal GB); `usable_bytes` what a process
    sees as the device's total, rounded down to the hundredth of a GiB that error messages print: less than
    nominal where the driver and error correction keep some. `architecture` is what compilers call it:
    "sm_90", "gfx942". Each figure has its source: `nominal_source` states, `usable_source` was measured."""

    name: str
    full_name: str
    nominal_bytes: int
    usable_bytes: int
    architecture: str
    nominal_source: str
    usable_source: str
    speed: Speed

    @property
    def capability(self) -> tuple[int, int] | None:
        """CUDA's compute capability; None for what is not CUDA's."""
        if not self.architecture.startswith("sm_"):
            return None
        number = int(self.architecture.removeprefix("sm_"))
        return divmod(number, 10)


@dataclass(frozen=True, slots=True)
class Overhead:
    """What a process holds of its device that the caching allocator does not know of, bytes, as a range.
    `per` says of what there is one: a process, a communicator."""

    name: str
    least_bytes: int
    most_bytes: int
    per: str
    source: str


def _gpu(
    name: str, full_name: str, gb: int, gib: float, architecture: str, speed: Speed, nominal: str, usable: str
) -> Accelerator:
    sees = int(gib * 100) * GIB // 100
    return Accelerator(name, full_name, gb * 10**9, sees, architecture, nominal, usable, speed)


def _speed(terabytes: float, tera32: float, tera16: float, source: str, pcie: int) -> Speed:
    """On 16 lanes of PCI Express of the generation `pcie`."""
    host = f"PCIe {pcie}.0 x16 at the rate that data sheets state for it"
    return Speed(terabytes * 1e12, tera32 * 1e12, tera16 * 1e12, source, PCIE[pcie] * 1e9, host)


PCIE = {4: 32, 5: 64}
"""GB/s in one direction by generation: 64 and 128 GB/s for both together in NVIDIA's data sheets of A100 and
H100. Real copies of pinned memory reach some four fifths of it."""


_A100 = "NVIDIA, A100 data sheet"
_H100 = "NVIDIA, H100 data sheet, without sparsity"


_SAYS = "total capacity in an out-of-memory message of PyTorch, "
PRESETS: dict[str, Accelerator] = {
    gpu.name: gpu
    for gpu in (
        _gpu(
            *("rtx4090", "NVIDIA GeForce RTX 4090", 24, 23.64, "sm_89"),
            _speed(1.008, 82.6, 165.2, "NVIDIA, Ada GPU architecture, RTX 4090, float32 accumulated", 4),
            "NVIDIA, GeForce RTX 4090 specifications: 24 GB GDDR6X",
            f"{_SAYS}github.com/ali-vilab/VGen/issues/104 (others say 23.52 to 23.65)",
        ),
        _gpu(
            *("a100-40", "NVIDIA A100 40GB", 40, 39.50, "sm_80"),
            _speed(1.555, 19.5, 312, _A100, 4),
            "NVIDIA, A100 data sheet: 40 GB HBM2",
            f"{_SAYS}github.com/TianheWu/CoSeR/issues/10",
        ),
        _gpu(
            *("a100-80", "NVIDIA A100 80GB", 80, 79.25, "sm_80"),
            _speed(2.039, 19.5, 312, _A100, 4),
            "NVIDIA, A100 data sheet: 80 GB HBM2e",
            f"{_SAYS}github.com/wbfwonderful/Vad-R1/issues/11",
        ),
        _gpu(
            *("h100-80", "NVIDIA H100 SXM 80GB", 80, 79.11, "sm_90"),
            _speed(3.35, 67, 989.4, _H100, 5),
            "NVIDIA, H100 data sheet: 80 GB HBM3",
            f"{_SAYS}github.com/vllm-project/vllm/issues/27508",
        ),
        _gpu(
            *("h100-96", "NVIDIA H100 96GB (also GH200)", 96, 93.00, "sm_90"),
            _speed(4.0, 67, 989.4, "NVIDIA, GH200 data sheet, 96 GB HBM3, without sparsity", 5),
            "NVIDIA, GH200 data sheet: 96 GB HBM3; torchtitan's benchmarks name H100s of 96 GB",
            "the 94 GB H100 NVL's total capacity, as the least that is published for its kind: "
            "github.com/ali-vilab/VACE/issues/56; the 96 GB model was not found measured and has more",
        ),
        _gpu(
            *("h200", "NVIDIA H200 SXM", 141, 139.81, "sm_90"),
            _speed(4.8, 67, 989.4, "NVIDIA, H200 data sheet, without sparsity", 5),
            "NVIDIA, H200 data sheet: 141 GB HBM3e",
            f"{_SAYS}as many public reports on 8 × H200 quote it (139.81 GiB in all of ten that were read)",
        ),
        _gpu(
            *("b200", "NVIDIA B200", 180, 178.35, "sm_100"),
            _speed(
                8.0, 75, 2250, "NVIDIA, HGX and DGX B200 data sheets, of one of 8 GPUs, without sparsity", 5
            ),
            "NVIDIA, DGX B200 data sheet: 1,440 GB in 8 GPUs",
            f"{_SAYS}as public reports on B200 quote it (178.35 in eight of ten, 178.36 in two)",
        ),
        _gpu(
            *("mi300x", "AMD Instinct MI300X", 192, 191.69, "gfx942"),
            _speed(5.3, 163.4, 1307.4, "AMD, Instinct MI300X data sheet, without sparsity", 5),
            "AMD, Instinct MI300X data sheet: 192 GB HBM3, which are 192 GiB",
            f"{_SAYS}as public reports on MI300X quote it (191.98 in seven of ten that were read, 191.69 in "
            "three)",
        ),
    )
}
"""The presets by name."""

CONTEXT = Overhead(
    "CUDA context and loaded kernels",
    300 * MIB,
    1100 * MIB,
    "process",
    "github.com/pytorch/pytorch/issues/107667: about 300 MB with lazy loading (CUDA 11.7 on), "
    "more than 1,000 MB where all kernels are loaded at once",
)
NCCL = Overhead(
    "NCCL buffers",
    544 * MIB,
    1600 * MIB,
    "communicator",
    "github.com/NVIDIA/nccl/issues/964: 544 MB for a group of 2 and 688 MB for one of 3 or 4, A100 with "
    "NVLink; issues/864: about 1.6 GB for one communicator; all-to-all on 8 H100 took 3.3 GB (issues/1685)",
)


def nccl_buffers(ranks: int) -> Overhead:
    """What NCCL keeps for a group of so many ranks; larger ones than were measured have no less."""
    least = NCCL.least_bytes if ranks <= 2 else OF_THREE * MIB
    return Overhead(f"NCCL buffers, a group of {ranks:,}", least, NCCL.most_bytes, NCCL.per, NCCL.source)


OF_THREE = 688
"""MiB for a group of 3 or 4 (`NCCL.source`)."""
NOT_NVIDIA = "sm90"
"""Whose operators are taken for a card that is not CUDA's."""
USUAL = "h100-80"
"""The preset that a run on many devices is judged for where nobody names one."""


def accelerator(name: str) -> Accelerator:
    """The preset of that name.

    Raises
    ------
    InputError: there is none.
    """
    if name not in PRESETS:
        raise InputError("--device", "", repr(name), f"one of {', '.join(PRESETS)}")
    return PRESETS[name]


def operators_of(gpu: Accelerator) -> str:
    """The architecture whose operators a run on `gpu` takes."""
    return NOT_NVIDIA if gpu.capability is None else gpu.architecture


def blas_workspace(gpu: Accelerator | None) -> Overhead:
    """What a handle of cuBLAS (hipBLAS) keeps for one stream: of one device, or of any where `gpu` is None.

    PyTorch takes it from the caching allocator at the first matrix product, so that a snapshot has it; an
    observation of a run elsewhere has not. cuBLASLt shares it or has as much again.
    """
    known = WORKSPACES.values() if gpu is None else [_workspace(gpu)]
    least, most = min(low for low, _ in known), max(high for _, high in known)
    return Overhead("BLAS workspaces", least, most, "stream", WORKSPACE_SOURCE)


WORKSPACES = {
    "before sm_90": (8_519_680, 2 * 8_519_680),
    "sm_90 on": (32 * MIB, 64 * MIB),
    "gfx942": (128 * MIB, 204 * MIB),
}
"""Bytes, without and with one of BLASLt beside."""
WORKSPACE_SOURCE = (
    "torch, aten/src/ATen/cuda/CublasHandlePool.cpp: 8,519,680 B, 32 MiB from sm_90 on, 128 MiB on gfx94 "
    "and 76 MiB of hipBLASLt"
)


def _workspace(gpu: Accelerator) -> tuple[int, int]:
    if gpu.capability is None:
        return WORKSPACES["gfx942"]
    return WORKSPACES["sm_90 on" if gpu.capability >= (9, 0) else "before sm_90"]
