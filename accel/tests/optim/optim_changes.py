# SPDX-License-Identifier: Apache-2.0
"""Programs that change what an optimizer on the fake device has been given. `AdamW` is the class
under test: ours, or PyTorch's own with ours injected.
"""

LIES_OTHERWISE = """
def transpose(params, optimizer):
    params[0].data = params[0].data.t()

def cut(params, optimizer):
    params[1].data = params[1].data[:50]
    params[1].grad = torch.ones(50)
    for key in ("exp_avg", "exp_avg_sq"):
        optimizer.state[params[1]][key].data = optimizer.state[params[1]][key].data[:50]

def as_whole(params, optimizer):
    params[2].data = params[2].data.view(32)
    params[2].grad = torch.ones(32)
    for key in ("exp_avg", "exp_avg_sq"):
        optimizer.state[params[2]][key].data = optimizer.state[params[2]][key].data.view(32)

def made(kind):
    torch.manual_seed(4)
    params = [torch.randn(6, 6).requires_grad_(), torch.randn(100).requires_grad_(), torch.randn(8, 4).requires_grad_()]
    return params, kind(params, lr=0.1)

runs = [made(AdamW) for _ in range(2)] + [made(torch.optim.AdamW)]
whole = [params[1].data for params, _ in runs]
for number, change in enumerate([None, None, cut, None, as_whole, None, transpose, None]):
    for run, (params, optimizer) in enumerate(runs):
        on_gpu(run == 0)
        _device.is_capturing = lambda: AdamW is torch.optim.AdamW and run == 2
        give(params, number)
        if change:
            change(params, optimizer)
        optimizer.step()
        if change is cut:
            whole[run] = whole[run].clone()
    assert bool(launches()) == (AdamW is not torch.optim.AdamW or number < 6), number  # injected, state that lies otherwise than its parameter is PyTorch's
    for ours, theirs in zip(runs[0][0], runs[1][0]):
        assert torch.equal(ours, theirs), (number, (ours - theirs).abs().max())
    for ours, theirs in zip(runs[0][0], runs[2][0]):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6), (number, (ours - theirs).abs().max())
assert torch.equal(whole[0][50:], whole[1][50:])
_device.is_capturing = lambda: False

# What does not fit is PyTorch's to refuse, and nothing is written past an end.
for what in ("parameter", "gradient"):
    params, optimizer = made(AdamW)
    on_gpu(True)
    for number in range(2):
        give(params, number)
        optimizer.step()
    whole = params[1].data
    if what == "parameter":
        params[1].data = whole[:50]
    else:
        params[1].grad.data = torch.ones(50)
    behind = whole[50:].clone()
    try:
        optimizer.step()
    except RuntimeError as error:
        assert "size" in str(error) or "shape" in str(error), error
    else:
        raise AssertionError(what)
    assert what != "parameter" or torch.equal(behind, whole[50:])
print("reached the end")
"""

HAS_NO_MEMORY = """
if hasattr(torch.utils, "swap_tensors"):
    params = [torch.nn.Parameter(torch.ones(8)) for _ in range(3)]
    optimizer = AdamW(params, lr=0.1)
    on_gpu(True)
    for number in range(4):
        for parameter in params if number < 2 else (params[0], params[2]):
            parameter.grad = torch.ones(8)
        if number == 2:
            params[1].grad = None
            torch.utils.swap_tensors(params[1], torch.nn.Parameter(torch.empty(8, device="meta")))
        before = params[0].detach().clone()
        optimizer.step()
        assert not torch.equal(before, params[0]), number
        assert launches(), number
print("reached the end")
"""

# Two runs with the same changes, the first on the fake device: `changed(change)` makes four steps
# of each, the last two after `change` of (parameters, optimizer), and answers whether each of these
# was the device's.
CHANGED = """
def changed(change):
    runs, on_device = [], []
    for device in (True, False):
        torch.manual_seed(4)
        params = [torch.nn.Parameter(torch.randn(shape)) for shape in ((8,), (4, 4), (3, 5))]
        optimizer = AdamW(params, lr=0.1)
        for number in range(4):
            on_gpu(device)
            give(params, number)
            if number >= 2:
                change(params, optimizer)
            launches()
            optimizer.step()
            if number >= 2 and device:
                on_device.append(bool(launches()))
        runs.append(params)
    for ours, theirs in zip(*runs):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6), (change, (ours - theirs).abs().max())
    return on_device
"""

PARAMETERS_AS_GRADIENTS = (
    CHANGED
    + """
def of_one(params, optimizer):
    params[0].grad = torch.nn.Parameter(params[0].grad)

def of_one_beside_one_that_lies_otherwise(params, optimizer):
    of_one(params, optimizer)
    params[1].grad = torch.arange(4.0).expand(4, 4)

def of_all(params, optimizer):
    for parameter in params:
        parameter.grad = torch.nn.Parameter(parameter.grad)

for change in (of_one, of_one_beside_one_that_lies_otherwise, of_all):
    assert changed(change) == [True, True], change
print("reached the end")
"""
)

STATE_WITHOUT_STRIDES = (
    CHANGED
    + """
KEPT = [torch.eye(4).to_sparse(), torch.eye(4).to_sparse_csr(), torch.nested_tensor([torch.ones(3), torch.ones(2)]) if hasattr(torch, "nested_tensor")
        else torch.nested.nested_tensor([torch.ones(3), torch.ones(2)])]
if torch.backends.mkldnn.is_available():
    KEPT.append(torch.ones(4, 4).to_mkldnn())
for kept in KEPT:
    def keep(params, optimizer):
        optimizer.state[params[0]]["the program's"] = kept
    assert changed(keep) == [True, True], kept.layout
    # What belongs to the step is seen beside it as ever.
    def keep_and_exchange(params, optimizer):
        keep(params, optimizer)
        optimizer.state[params[1]]["exp_avg"] = torch.ones(4, 4)
    assert changed(keep_and_exchange) == [True, True], kept.layout
    def keep_and_move(params, optimizer):
        keep(params, optimizer)
        optimizer.state[params[1]]["exp_avg"].data = torch.full((4, 4), 0.5)
    assert changed(keep_and_move) == [True, True], kept.layout
print("reached the end")
"""
)

GRADIENTS_OF_A_BACKWARD = (
    CHANGED
    + """
class Marked(torch.Tensor):
    pass

class Wrapper(torch.Tensor):  # its values lie in another tensor
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        bare = lambda one: one.inner if isinstance(one, cls) else one
        def all_bare(one):
            return type(one)(map(all_bare, one)) if isinstance(one, (list, tuple)) else bare(one)
        return function(*map(all_bare, args), **{key: all_bare(value) for key, value in (kwargs or {}).items()})

def of_a_graph(params, optimizer):
    grads = [parameter.grad for parameter in params]
    optimizer.zero_grad()
    for parameter in params:
        parameter.grad = None
    sum((parameter * grad).sum() for parameter, grad in zip(params, grads)).backward()

def negated(params, optimizer):
    if hasattr(torch, "_neg_view"):
        params[1].grad = torch._neg_view(params[1].grad)

def marked(params, optimizer):
    params[2].grad = params[2].grad.as_subclass(Marked)

def wrapped(params, optimizer):
    params[0].grad = Wrapper(params[0].grad)

def one_less(params, optimizer):
    params[0].grad = None

for change in (of_a_graph, negated, one_less):
    assert changed(change) == [True, True], change
# A subclass may give its memory another meaning, so PyTorch updates.
assert changed(marked) == [False, False]
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 0):
    assert changed(wrapped) == [False, False]
print("reached the end")
"""
)

NAMES_EXCHANGED = (
    CHANGED
    + """
def exchange(params, optimizer):
    held = optimizer.state[params[1]]
    values = [held.pop(key) for key in ("exp_avg", "exp_avg_sq")]
    others = [(key, held.pop(key)) for key in [*held]]
    values[0].abs_()  # squares are not below 0
    held.update(zip(("exp_avg_sq", "exp_avg"), values))
    held.update(others)

assert changed(exchange) == [True, True]
print("reached the end")
"""
)

NEGATED_BETWEEN_STEPS = (
    CHANGED
    + """
def negate(params, optimizer):
    params[0].data = torch._neg_view(params[0].data)

if hasattr(torch, "_neg_view"):
    assert changed(negate)[0] is False
print("reached the end")
"""
)

# To step: one that is negated lazily is PyTorch's to update, wherever it is.
NEGATED = """
if hasattr(torch, "_neg_view"):
    results = []
    for device in (True, False, None):  # on the fake one, on the CPU, and PyTorch's own of values that are as they seem
        torch.manual_seed(4)
        params = [torch.nn.Parameter(torch.randn(8)), torch.nn.Parameter(torch.randn(4, 4))]
        params[0].data = torch._neg_view(params[0].data) if device is not None else -params[0].data
        optimizer = (AdamW if device is not None else torch.optim.AdamW)(params, lr=0.1)
        for number in range(3):
            on_gpu(bool(device))
            give(params, number)
            optimizer.step()
        results.append([parameter.detach().clone() for parameter in params])
    for found in results[:2]:
        for one, expected in zip(found, results[2]):
            assert torch.allclose(one, expected, rtol=1e-5, atol=1e-6), (one - expected).abs().max()
print("reached the end")
"""
