# SPDX-License-Identifier: Apache-2.0
"""What a program changes between the steps of paceline.optim on a GPU: parameters, gradients, state
and groups, each of which the next step must see. On the fake driver, as test_optim_device.py.
"""

from __future__ import annotations

import pytest
from optim_changes import (
    GRADIENTS_OF_A_BACKWARD,
    HAS_NO_MEMORY,
    LIES_OTHERWISE,
    NAMES_EXCHANGED,
    NEGATED,
    NEGATED_BETWEEN_STEPS,
    PARAMETERS_AS_GRADIENTS,
    STATE_WITHOUT_STRIDES,
)
from programs import Train
from test_optim_device import BEGIN

ASKED = """
from paceline.optim import _layouts
_layouts.exchange = lambda: None
"""


# As PyTorch tells where tensors lie, and as releases before 2.10 do.
@pytest.fixture(params=["", ASKED], ids=["newest", "asked"])
def on_fake(
    train_by_fork: Train, fake_device: dict[str, str], request: pytest.FixtureRequest
) -> Train:
    def run(program: str, **extra: str) -> None:
        result = train_by_fork(BEGIN + request.param + program, **{**fake_device, **extra})
        assert result.code == 0, result.output
        assert "reached the end" in result.output, result.output

    return run  # type: ignore[return-value]


def test_changed_tensors_are_noticed(on_fake: Train) -> None:
    on_fake("""
ours, theirs = leaves(torch.bfloat16), leaves(torch.bfloat16)
one, other = optim.AdamW(ours), optim.AdamW(theirs)
plans = set()
kept = []

def both(number, between=None):
    for params, optimizer in ((ours, one), (theirs, other)):
        on_gpu(optimizer is one)
        give(params, number)
        if between:
            between(params, optimizer)
        optimizer.step()
    plans.add(id(one._plan))
    kept.append(one._plan)
    compare(one, other)

def write(params, optimizer):
    with torch.no_grad():
        params[0][3] = 0.5
        params[0].add_(0.25)

def replace_state(params, optimizer):
    optimizer.state[params[1]]["exp_avg"] = torch.ones(9001)

def reload(params, optimizer):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

def move(params, optimizer):
    params[0].data = params[0].data.clone()
    params[0].grad = params[0].grad.clone()

def move_state(params, optimizer):
    for state in optimizer.state.values():
        for value in state.values():
            value.data = value.data.clone()

def replace_in_the_same_place(params, optimizer):
    for _ in range(20):  # until a new object has the old one's address
        optimizer.state[params[1]]["exp_avg"] = None
        optimizer.state[params[1]]["exp_avg"] = torch.full((9001,), 2.0)

def fewer(params, optimizer):
    params[1].grad = None

def transposed(params, optimizer):
    params[0].grad = params[0].grad.t().contiguous().t()

def lazily_negative(params, optimizer):
    params[0].grad = torch._neg_view(params[0].grad)

def other_dtype(params, optimizer):
    optimizer.state[params[0]]["step"] = torch.tensor(7.0)

def other_parameter(params, optimizer):  # the old one still has its gradient
    other = torch.full((9001,), 0.5, dtype=params[1].dtype, requires_grad=True)
    other.grad = torch.ones_like(other)
    optimizer.param_groups[0]["params"][1] = other

def clear(params, optimizer):
    optimizer.state.clear()

def forget(params, optimizer):
    del optimizer.state[params[0]]

def begin_anew(params, optimizer):
    optimizer.state[params[0]] = {}

def keep_beside(params, optimizer):  # what is no dict is the program's own, and may change as it likes
    optimizer.state["seen"] = [number]

def exchange_what_lives(params, optimizer):
    old.append(optimizer.state[params[0]]["exp_avg"])
    optimizer.state[params[0]]["exp_avg"] = old[-1].clone().mul_(2)

def exchange_memory(params, optimizer):  # while the program keeps what the state had
    for value in optimizer.state[params[1]].values():
        old.append(value.data)
        value.data = value.data.clone()

old = []
both(0)
both(1)
assert len(plans) == 1
both(2, fewer)
assert len(plans) == 1  # a gradient less needs no other table
assert float(one.state[ours[1]]["step"]) == 2 and float(one.state[ours[0]]["step"]) == 3
for number, change in enumerate([transposed, lazily_negative], start=10):
    both(number, change)
    assert len(plans) == 1, change  # it is copied into its place
changes = [write, replace_state, exchange_memory, reload, move, move_state, other_dtype]
changes += [other_parameter, clear, forget, begin_anew, keep_beside, exchange_what_lives]
for number, change in enumerate(changes, start=3):
    both(number, change)
    assert len(plans) == number - 1, change
for number in (20, 21):
    both(number, lambda params, optimizer: optimizer.state["seen"].append(number))
assert len(plans) == 1 + len(changes)
both(22, replace_in_the_same_place)  # a new object with the old one's address, in the old one's memory, needs no other table
both(23)
print("reached the end")
""")


def test_memory_that_the_program_keeps_is_not_written_to(on_fake: Train) -> None:
    on_fake("""
params = leaves()
one = optim.AdamW(params)
on_gpu(True)
for number in range(2):
    give(params, number)
    one.step()
kept = one.state[params[1]]["exp_avg"].data
backup = kept.clone()
one.state[params[1]]["exp_avg"].data = backup.clone()
give(params, 2)
one.step()
assert torch.equal(kept, backup)
if hasattr(torch.utils, "swap_tensors"):
    torch.utils.swap_tensors(one.state[params[1]]["exp_avg"], torch.zeros(9001))
    give(params, 3)
    one.step()
    assert one.state[params[1]]["exp_avg"].count_nonzero() > 0
print("reached the end")
""")


def test_groups_that_ask_for_other_state_get_it(on_fake: Train) -> None:
    on_fake("""
def switched(kind, **later):
    ours, theirs = leaves(), leaves()
    one, other = kind(ours, lr=0.1), kind(theirs, lr=0.1)
    for number in range(5):
        for params, optimizer in ((ours, one), (theirs, other)):
            on_gpu(optimizer is one)
            if number == 2:
                optimizer.param_groups[0].update(later)
            give(params, number)
            optimizer.step()
        compare(one, other)

switched(optim.SGD, momentum=0.9)
switched(optim.AdamW, amsgrad=True)
print("reached the end")
""")


def test_a_parameter_that_lies_otherwise_in_the_same_memory_is_noticed(on_fake: Train) -> None:
    on_fake("AdamW = optim.AdamW" + LIES_OTHERWISE)


def test_a_tensor_that_has_no_memory_any_more_ends_no_step(on_fake: Train) -> None:
    on_fake("AdamW = optim.AdamW" + HAS_NO_MEMORY)


def test_a_gradient_may_be_a_parameter(on_fake: Train) -> None:
    on_fake("AdamW = optim.AdamW" + PARAMETERS_AS_GRADIENTS)


def test_state_may_hold_what_has_no_strides(on_fake: Train) -> None:
    on_fake("AdamW = optim.AdamW" + STATE_WITHOUT_STRIDES)


def test_a_parameter_that_is_negated_lazily_keeps_its_sign(on_fake: Train) -> None:
    on_fake("AdamW = optim.AdamW" + NEGATED)


def test_a_parameter_that_is_negated_between_steps_keeps_its_sign(on_fake: Train) -> None:
    on_fake("AdamW = optim.AdamW" + NEGATED_BETWEEN_STEPS)


def test_gradients_are_found_whatever_they_are(on_fake: Train) -> None:
    on_fake("AdamW = optim.AdamW" + GRADIENTS_OF_A_BACKWARD)


def test_names_of_state_may_be_exchanged(on_fake: Train) -> None:
    on_fake("AdamW = optim.AdamW" + NAMES_EXCHANGED)


def test_what_groups_ask_is_read_as_it_is_now(on_fake: Train) -> None:
    on_fake("""
ours, theirs = leaves(), leaves()
one, other = (optim.AdamW([{"params": p[:2]}, {"params": p[2:], "betas": [0.9, 0.99]}]) for p in (ours, theirs))

def flat(optimizer):
    params = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return type("Whole", (), {"param_groups": [{"params": params}], "state": optimizer.state, "_plan": optimizer._plan})

def ask(**values):
    def change(first, second):
        second.update(values)
    return change

def betas_in_place(first, second):
    second["betas"][0] = 0.5

def other_object_at_the_same_place(first, second):
    for value in (0.3, 0.7):
        first["weight_decay"] = value * float(len(second))

here = torch.tensor(0.125)
changes = [None, ask(lr=0.5), ask(weight_decay=0.25), betas_in_place, ask(betas=(0.8, 0.9)), ask(lr=here), lambda *_: here.fill_(0.25), ask(lr=0.75),
           ask(lr=here), ask(lr=0.5, maximize=True), other_object_at_the_same_place, ask(eps=1.0), None]
for number, change in enumerate(changes):
    for params, optimizer in ((ours, one), (theirs, other)):
        on_gpu(optimizer is one)
        give(params, number)
        if change and not (change is changes[6] and optimizer is other):
            change(*optimizer.param_groups)
        optimizer.step()
    compare(flat(one), flat(other))
    if number == 0:
        plan = one._plan
assert one._plan is plan
print("reached the end")
""")


def test_layouts_and_state_are_compared_whole(on_fake: Train) -> None:
    on_fake("""
import array
from paceline.optim import _cache, _layouts

square = torch.ones(4, 4)
for others in ((), (torch.ones(4, 4).t(),)):  # all contiguous, and not
    tensors = (torch.nn.Parameter(torch.ones(4, 4)), torch.zeros(()), square, *others)
    layouts, places = _layouts.of(tensors), array.array("Q", bytes(8 * len(tensors)))
    assert layouts.same(tensors) and layouts.same(tensors, are_the_same=True)
    elsewhere = [one.detach().clone() for one in tensors]
    assert not layouts.same(elsewhere) and layouts.set_addresses(elsewhere, places)
    assert list(places) == [one.data_ptr() for one in elsewhere]
    before = square.detach()
    for data in (before.clone(), before.t(), before[:2], before.view(torch.int32), torch._neg_view(before)):
        square.data = data
        assert not layouts.same(tensors) and not layouts.same(tensors, are_the_same=True), data
        alike = data.is_contiguous() and data.dtype is torch.float32 and len(data) == 4 and not data.is_neg()
        assert layouts.set_addresses(tensors, places) == alike, data
        square.data = before
        assert layouts.same(tensors)
    for other in (1.5, {}, None, object(), torch.Tensor, square.to_sparse()):
        assert not layouts.same((other, *tensors[1:])), other
        assert not layouts.set_addresses((other, *tensors[1:]), places), other
try:
    _layouts.of([torch.ones(3).to_sparse()])
except RuntimeError:
    pass
else:
    raise AssertionError("a tensor without memory of its own has a place")

class Own(dict):
    pass

def state_of():
    return {square: Own(a=torch.ones(2), b=3.5), "key": {"c": torch.zeros(3)}, "other": 7}

for replaced in (lambda s: s[square].update(a=torch.ones(2)), lambda s: s[square].update(b=4.5), lambda s: s.pop("key"), lambda s: s["key"].update(d=None),
                 lambda s: s["key"].clear(), lambda s: s.update(more={}), lambda s: s["key"].__setitem__("d", s["key"].pop("c")),
                 lambda s: setattr(s[square]["a"], "data", torch.ones(2)), lambda s: s.update(key=s.pop("key"), other={})):
    state = state_of()
    seen = _cache.State(state)
    assert seen.same(state) and not seen.same({}) and not seen.same(state_of())
    replaced(state)
    assert not seen.same(state)
# A value that dies may leave its id to another.
state = state_of()
seen = _cache.State(state)
del state["key"]["c"]
state["key"]["c"] = torch.zeros(4)
assert not seen.same(state)
print("reached the end")
""")


def test_what_was_made_in_inference_mode_is_stepped(on_fake: Train) -> None:
    on_fake("""
results = []
for device in (True, False):
    on_gpu(device)
    with torch.inference_mode():
        params = [torch.ones(8), torch.zeros(3)]
    other = torch.ones(5, requires_grad=True)
    optimizer = optim.AdamW([*params, other], lr=0.1)
    launches()
    for number in range(3):
        with torch.inference_mode():
            for parameter in params:
                parameter.grad = torch.full_like(parameter, 0.5 + number)
        other.grad = torch.ones(5)
        with torch.inference_mode():
            optimizer.step()
        assert bool(launches()) == device, number
    results.append([*params, other])
for ours, theirs in zip(*results):
    assert torch.equal(ours, theirs) and ours.count_nonzero()
print("reached the end")
""")


def test_zeros_that_have_no_memory_are_a_gradient(on_fake: Train) -> None:
    on_fake("""
if hasattr(torch, "_efficientzerotensor"):
    results = []
    for kind in (optim.AdamW, torch.optim.AdamW):
        params = [torch.ones(8, requires_grad=True), torch.ones(3, requires_grad=True)]
        optimizer = kind(params, lr=0.1)
        on_gpu(kind is optim.AdamW)
        for number in range(4):
            for parameter in params:
                parameter.grad = torch.ones_like(parameter)
            if number == 2:
                params[0].grad = torch._efficientzerotensor(8)
            optimizer.step()
        results.append((params, optimizer))
    for ours, theirs in zip(results[0][0], results[1][0]):
        assert torch.allclose(ours, theirs), (ours, theirs)
        assert float(results[0][1].state[ours]["step"]) == 4
print("reached the end")
""")


def test_an_optimizer_and_its_state_go_when_the_program_lets_them(on_fake: Train) -> None:
    on_fake("""
import gc, weakref
params = leaves()
optimizer = optim.AdamW(params)
on_gpu(True)
give(params, 0)
optimizer.step()
assert optimizer._plan is not None
gc.disable()
state = weakref.ref(optimizer.state[params[0]]["exp_avg"])
optimizer.state.clear()
assert state() is None
gone = weakref.ref(optimizer), weakref.ref(params[0])
del optimizer, params
assert [one() for one in gone] == [None, None]
print("reached the end")
""")


def test_a_parameter_that_gets_its_first_gradient_late_joins(on_fake: Train) -> None:
    on_fake("""
ours, theirs = leaves(), leaves()
one, other = optim.SGD(ours, lr=0.1, momentum=0.9), optim.SGD(theirs, lr=0.1, momentum=0.9)
for number in range(4):
    for params, optimizer in ((ours, one), (theirs, other)):
        on_gpu(optimizer is one)
        give(params, number)
        if number < 2:
            params[0].grad = None
        optimizer.step()
    compare(one, other)
print("reached the end")
""")
