# SPDX-License-Identifier: Apache-2.0
"""The operators of vision models on a GPU: correctness first, then times beside what a program has
today. Attention is compared with float64, and the assignments with the library's on the CPU.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import checks
import torch
from detection_checks import DetectionChecks
from operator_checks import OperatorChecks
from paceline import ops
from paceline.ops import _window, _window_kernels
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parents[2] / "accel/tests/ops"))
import originals  # type: ignore[import-not-found]

Tensor = torch.Tensor
DEVICE = torch.device("cuda")
HALVES = (torch.float16, torch.bfloat16)


class Windows(NamedTuple):
    """What one call attends to."""

    qkv: Tensor
    table: Tensor
    index: Tensor
    mask: Tensor | None
    out_grad: Tensor

    def call(self) -> Tensor:
        return ops.window_attention(self.qkv, self.table, self.index, self.mask)

    def backward(self, call: Callable[[], Tensor]) -> None:
        call().backward(self.out_grad)
        self.qkv.grad = self.table.grad = None


def windows_of(
    count: int, side: int, heads: int, masks: int, dtype: torch.dtype = torch.float16
) -> Windows:
    torch.manual_seed(side)
    tokens = side * side
    places = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"), -1)
    off = places.view(-1, 1, 2) - places.view(1, -1, 2) + side - 1
    index = (off[..., 0] * (2 * side - 1) + off[..., 1]).to(DEVICE)
    mask = torch.where(torch.rand(masks, tokens, tokens, device=DEVICE) < 0.3, -100.0, 0.0)
    qkv = torch.randn(count, tokens, 3, heads, 32, device=DEVICE).to(dtype).requires_grad_()
    table = torch.randn((2 * side - 1) ** 2, heads, device=DEVICE).requires_grad_()
    out_grad = torch.randn(count, tokens, heads * 32, device=DEVICE).to(dtype)
    return Windows(qkv, table, index, mask if masks > 0 else None, out_grad)


def results_of(windows: Windows, call: Callable[..., Tensor]) -> list[Tensor]:
    out = call(windows.qkv, windows.table, windows.index, windows.mask)
    grads = torch.autograd.grad(out, (windows.qkv, windows.table), windows.out_grad.to(out.dtype))
    return [out.detach(), *grads]  # a graph that is kept would bind its leaves to this stream


def in_double(windows: Windows) -> Windows:
    qkv, table = (each.detach().double().requires_grad_() for each in (windows.qkv, windows.table))
    mask = None if windows.mask is None else windows.mask.double()
    return Windows(qkv, table, windows.index, mask, windows.out_grad.double())


def window_attention_is_that_of_float64() -> None:
    shapes = [(128, 7, 3, 64), (6, 8, 12, 0), (5, 7, 24, 5), (3, 4, 1, 3), (1, 1, 2, 1)]
    for count, side, heads, masks in shapes:
        for dtype in HALVES:
            windows = windows_of(count, side, heads, masks, dtype)
            assert _window.takes(*windows[:4])
            wanted = results_of(in_double(windows), ops.window_attention)
            last = torch.finfo(dtype).eps / 2
            for found, exact, bound in zip(
                results_of(windows, ops.window_attention), wanted, (3, 4, 4), strict=True
            ):
                error = (found.double() - exact).abs().max()
                assert error <= bound * last * exact.abs().max() + 1e-12, (side, dtype, error)


def window_attention_of_three_tensors() -> None:
    windows = windows_of(8, 7, 6, 4)
    q, k, v = (each.contiguous() for each in windows.qkv.detach().unbind(2))
    apart = ops.window_attention((q, k, v), windows.table, windows.index, windows.mask)
    assert torch.equal(apart, windows.call())


def window_attention_repeats_itself_in_a_graph() -> None:
    windows = windows_of(512, 7, 3, 64)
    first = results_of(windows, ops.window_attention)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        results_of(windows, ops.window_attention)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = results_of(windows, ops.window_attention)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(one, other) for one, other in zip(first, captured, strict=True))


def a_second_backward_is_pytorchs() -> None:
    windows = windows_of(4, 7, 3, 4)

    def penalty(of: Windows) -> Tensor:
        out = ops.window_attention(*of[:4])
        (grad,) = torch.autograd.grad(out, of.qkv, of.out_grad.to(out.dtype), create_graph=True)
        return torch.autograd.grad(grad.double().square().sum(), of.table)[0]

    found, wanted = penalty(windows).double(), penalty(in_double(windows))
    assert (found - wanted).abs().max() < 0.01 * wanted.abs().max()


def detection(images: int, width: int, height: int, truths: int) -> tuple[Tensor, Tensor]:
    centers = torch.rand(images * truths, 2) * torch.tensor([width, height])
    halves = (torch.rand(images * truths, 2) * 200 + 10) / 2
    return torch.cat((centers - halves, centers + halves), 1), centers


def points_of(height: int, width: int, stride: int) -> Tensor:
    ys, xs = torch.meshgrid(
        torch.arange(-(-height // stride)) * stride + stride // 2,
        torch.arange(-(-width // stride)) * stride + stride // 2,
        indexing="ij",
    )
    return torch.stack((xs.flatten(), ys.flatten()), 1).float()


def fcos3d_scene(images: int, truths: int = 20) -> tuple[list[Tensor], list[int], list[Tensor]]:
    torch.manual_seed(3)
    boxes, centers = detection(images, 1600, 900, truths)
    count = images * truths
    rows = [
        centers,
        torch.rand(count) * 60,
        boxes,
        torch.randn(count, 9),
        torch.randint(0, 10, (count,)),
        torch.randint(0, 9, (count,)),
    ]
    points = [points_of(900, 1600, stride) for stride in (8, 16, 32, 64, 128)]
    return points, [truths * i for i in range(images + 1)], rows


def fcos3d_targets_are_those_of_the_cpu() -> None:
    points, offsets, rows = fcos3d_scene(3)
    rows[0][4], rows[2][7] = float("nan"), float("nan")
    host = ops.fcos3d_targets(points, offsets, *rows)
    device = ops.fcos3d_targets(
        [each.to(DEVICE) for each in points], offsets, *(each.to(DEVICE) for each in rows)
    )
    for field, ours, theirs in zip(host._fields, device, host, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            # The yaw is PyTorch's, and the exponential the driver's.
            close = torch.allclose(one.cpu(), other, rtol=1e-6, atol=1e-6)
            assert close if one.is_floating_point() else torch.equal(one.cpu(), other), field


def simota_scene(images: int, truths: int = 20, classes: int = 80) -> list[Any]:
    torch.manual_seed(5)
    places = []
    for stride in (8, 16, 32):
        centers = points_of(640, 640, stride)
        places.append(torch.cat((centers, torch.full_like(centers, stride)), 1))
    priors = torch.cat(places)
    low = priors[:, :2] - priors[:, 2:] * (1 + 3 * torch.rand(images, len(priors), 2))
    high = priors[:, :2] + priors[:, 2:] * (1 + 3 * torch.rand(images, len(priors), 2))
    scores = torch.rand(images, len(priors), classes) ** 3
    offsets = [truths * i for i in range(images + 1)]
    boxes, _ = detection(images, 640, 640, truths)
    labels = torch.randint(0, classes, (images * truths,))
    return [torch.cat((low, high), 2), scores, priors, offsets, boxes, labels]


def to_device(scene: list[Any]) -> list[Any]:
    return [each.to(DEVICE) if isinstance(each, Tensor) else each for each in scene]


def simota_assigns_as_the_cpu() -> None:
    scene = simota_scene(8)
    host, device = ops.simota_assign(*scene), ops.simota_assign(*to_device(scene))
    # A last bit of a logarithm may decide between priors that cost almost the same.
    differ = int(device.gt_index.cpu().ne(host.gt_index).sum())
    matched = int(host.gt_index.ge(0).sum())
    checks.emit({"simota": "differs from the CPU's", "priors": differ, "of": matched})
    assert matched > 500 and differ <= matched // 1000


# -- times


def milliseconds(call: Callable[[], Any], calls: int = 20) -> float:
    """Of one call: the median of ten times `calls` in a row, the host's part included."""
    for _ in range(3):
        call()
    times = []
    for _ in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    return statistics.median(times)


def graphed(call: Callable[[], Any]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def replayed(call: Callable[[], list[Tensor]]) -> list[Tensor]:
    """The results of a captured graph, which holds none before it is replayed."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call()
    graph.replay()
    torch.cuda.synchronize()
    return found


def eager(windows: Windows) -> Tensor:
    return _window.by_torch(windows.qkv, windows.table, windows.index, windows.mask, 32**-0.5)


def sdpa(windows: Windows) -> Tensor:
    """As timm's Swin calls it."""
    qkv, table, index, mask, _ = windows
    count, tokens, _, heads, _ = qkv.shape
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    bias = table[index.view(-1)].view(tokens, tokens, heads).permute(2, 0, 1)[None]
    if mask is not None:
        masks = mask.view(1, -1, 1, tokens, tokens)
        masks = masks.expand(count // mask.shape[0], -1, heads, -1, -1)
        bias = bias + masks.reshape(-1, heads, tokens, tokens)
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
    return out.transpose(1, 2).reshape(count, tokens, -1)


def microseconds(call: Callable[[], Any]) -> float:
    return round(1e3 * milliseconds(call), 1)


def times_of(name: str, contender: Callable[[Windows], Tensor], count: int) -> None:
    windows = windows_of(count, 7, 3, 64)
    still = windows._replace(qkv=windows.qkv.detach(), table=windows.table.detach())

    def forward() -> Tensor:
        return contender(still)

    def both() -> None:
        windows.backward(lambda: contender(windows))

    row: dict[str, Any] = {"window_attention": name, "windows": count, "heads": 3}
    row["forward_us"], row["both_us"] = microseconds(forward), microseconds(both)
    row["forward_in_a_graph_us"] = microseconds(graphed(forward))
    row["both_in_a_graph_us"] = microseconds(graphed(both))
    checks.emit(row)


def times_of_window_attention() -> None:
    contenders = {
        "eager": eager,
        "sdpa": sdpa,
        "ours": Windows.call,
        "compiled": torch.compile(sdpa),
    }
    for count in (64, 2048):
        for name, contender in contenders.items():
            times_of(name, contender, count)


def a_swin_model_of_timm_trains_quicker() -> None:
    """As it comes, with autocast: losses of the same weights and data, and times of a step."""
    if importlib.util.find_spec("timm") is None:
        checks.emit({"model": "left out: there is no timm here"})
        return
    import timm
    from paceline._inject import operators, swin

    os.environ["PACELINE_OPERATORS"] = "Auto"
    pictures = torch.randn(64, 3, 224, 224, device=DEVICE)
    labels = torch.randint(0, 10, (64,), device=DEVICE)

    def losses(steps: int) -> tuple[list[float], float]:
        torch.manual_seed(1)
        model = timm.create_model("swin_tiny_patch4_window7_224", num_classes=10).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        told, events = [], []
        for _ in range(steps):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = functional.cross_entropy(model(pictures), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            told.append(loss.detach())
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()
        torch.cuda.synchronize()
        return [float(each) for each in told], events[4].elapsed_time(events[-1]) / (steps - 5)

    swin.uninstall()
    plain, before = losses(25)
    swin.install()
    fused, after = losses(25)
    told = operators.status().switch
    swin.uninstall()
    _, again = losses(25)
    checks.emit(
        {
            "model": "swin_tiny of timm, 64 pictures, bfloat16",
            "step_ms": round(min(before, again), 2),
            "step_with_operators_ms": round(after, 2),
            "last_loss": plain[-1],
            "last_loss_with_operators": fused[-1],
            "operators": told,
        }
    )
    assert told.startswith("on for timm"), told
    assert abs(plain[0] - fused[0]) < 0.02 and abs(plain[-1] - fused[-1]) < 0.2 + 0.1 * plain[-1]


def times_by_blocks() -> None:
    """How many blocks of a multiprocessor share the windows: which number is best."""
    windows = windows_of(2048, 7, 3, 64)
    still = windows._replace(qkv=windows.qkv.detach(), table=windows.table.detach())
    chosen = _window_kernels.FORWARD_BLOCKS, _window_kernels.BACKWARD_BLOCKS
    try:
        for blocks in (1, 2, 3, 4, 6, 8, 16):
            _window_kernels.FORWARD_BLOCKS = _window_kernels.BACKWARD_BLOCKS = blocks
            forward = milliseconds(graphed(still.call))
            both = milliseconds(graphed(lambda: windows.backward(windows.call)))
            checks.emit(
                {
                    "window_attention": "blocks of a multiprocessor",
                    "blocks": blocks,
                    "forward_us": round(1e3 * forward, 1),
                    "both_us": round(1e3 * both, 1),
                }
            )
    finally:
        _window_kernels.FORWARD_BLOCKS, _window_kernels.BACKWARD_BLOCKS = chosen


def emit_ratios(operator: str, contenders: dict[str, Callable[[], Any]]) -> None:
    found = {name: milliseconds(call, 3) for name, call in contenders.items()}
    ratios = {f"times_{name}": round(found[name] / found["ours"], 1) for name in found}
    times = {f"{name}_ms": round(each, 4) for name, each in found.items()}
    checks.emit({"operator": operator, **times, **ratios})


def times_of_fcos3d() -> None:
    points, offsets, rows = fcos3d_scene(2)
    points, rows = [each.to(DEVICE) for each in points], [each.to(DEVICE) for each in rows]
    fields = [rows[2], rows[4], rows[3], rows[0], rows[1], rows[5]]
    images = [
        originals.Objects(*(each[begin:end] for each in fields))
        for begin, end in itertools.pairwise(offsets)
    ]
    head = originals.Head()
    fixed = originals.fixed_fcos3d_image
    compiled = torch.compile(fixed)

    def theirs(*of_image: Any) -> None:
        with DEVICE:  # they make tensors of their own
            originals.fcos3d(points, images, head, *of_image)

    def ours() -> Any:
        return ops.fcos3d_targets(points, offsets, *rows)

    emit_ratios(
        "fcos3d_targets",
        {
            "original": theirs,
            "fix": lambda: theirs(fixed),
            "compiled": lambda: theirs(compiled),
            "ours": ours,
            "ours_in_a_graph": graphed(ours),
        },
    )


def times_of_simota() -> None:
    boxes, scores, priors, begins, truths, labels = to_device(simota_scene(8))

    def theirs(**settings: Any) -> None:
        with DEVICE:
            for i, (begin, end) in enumerate(itertools.pairwise(begins)):
                originals.simota_image(
                    boxes[i], scores[i], priors, truths[begin:end], labels[begin:end],
                    stable=False, **settings,
                )  # fmt: skip

    def ours() -> Any:
        return ops.simota_assign(boxes, scores, priors, begins, truths, labels)

    emit_ratios(
        "simota_assign",
        {
            "original": theirs,
            "fix": lambda: theirs(costs_of=originals.gathered_class_costs),
            "ours": ours,
            "ours_in_a_graph": graphed(ours),
        },
    )


if __name__ == "__main__":
    sys.exit(
        checks.run(
            [
                window_attention_is_that_of_float64,
                window_attention_of_three_tensors,
                window_attention_repeats_itself_in_a_graph,
                a_second_backward_is_pytorchs,
                fcos3d_targets_are_those_of_the_cpu,
                simota_assigns_as_the_cpu,
                *OperatorChecks(DEVICE, "inductor", replayed, milliseconds, 128, 640).all(),
                *DetectionChecks(DEVICE, milliseconds, 120_000, 640).all(),
                times_by_blocks,
                times_of_fcos3d,
                times_of_simota,
                a_swin_model_of_timm_trains_quicker,
                times_of_window_attention,
            ]
        )
    )
