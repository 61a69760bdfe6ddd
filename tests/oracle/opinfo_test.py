"""Every op that PyTorch has too, on the samples of its own test suite: forward and gradient, in every
dtype that both know, as compiled and by reference.

In f64 what is computed must agree to 2^-40 of the largest element (it is the meaning that is compared);
in narrower floats the error against f64 may be twice that of PyTorch or of the op's own reference, the
larger one, plus one rounding of the largest element; integers and bools must be equal. Where NaN,
infinities and zeros stand is compared in all of them.

CONVENTIONS lists what differs by decision, and why; docs/ops.md says the same to users.
The programs and the mapping are in ops.py. TEGULA_OPINFO=NAME tries one OpInfo, with its failures printed.
"""

import collections
import os
import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from ops import COUNTERPARTS, NO_COUNTERPART
from program import DTYPES, Program, Refused, Skip, Tool

SAMPLES = int(os.environ.get("TEGULA_OPINFO_SAMPLES", "40"))  # of an op and dtype at most


def ties_half(p, s):
    a, b = torch.broadcast_tensors(s.input, s.args[0])
    return bool((a == b).any())


# OpInfo -> (when, what differs and why). The gradient alone is not compared there.
GRADIENT_CONVENTIONS = {
    "maximum": (ties_half, "at a tie the gradient goes to the first operand; PyTorch halves it"),
    "minimum": (ties_half, "at a tie the gradient goes to the first operand; PyTorch halves it"),
}
# Messages with which a program is refused by decision.
REFUSALS = {
    "does not hold": "a literal that the dtype does not hold is refused, not rounded",
    "expected a float": "a function of floats takes no integers: PyTorch converts them",
    "at least 1 dims": "0-d values have no last dim",
    "does not fit": "a window that does not fit is refused",
}


def infos():
    found = [i for i in op_db if (i.name, i.variant_test_name or None) in COUNTERPARTS]
    return found


def is_one_of(dtype, info, grad):
    known = info.supported_backward_dtypes("cpu") if grad else info.supported_dtypes("cpu")
    return dtype in known and dtype in DTYPES


def tensors_of(out):
    return [out] if isinstance(out, torch.Tensor) else [t for t in out if isinstance(t, torch.Tensor)]


def widened(v):
    """The same sample in f64, leaves apart."""
    if isinstance(v, torch.Tensor):
        return v.detach().to(torch.float64) if v.dtype.is_floating_point else v
    if isinstance(v, (list, tuple)):
        return type(v)(widened(x) for x in v)
    if isinstance(v, dict):
        return {k: widened(x) for k, x in v.items()}
    return v


class Call:
    """PyTorch's result and gradients of one sample."""

    def __init__(self, info, sample, wide, cts=None):
        def leaf(v):
            if isinstance(v, torch.Tensor):
                v = (widened(v) if wide else v).detach()
                if v.dtype.is_floating_point:
                    v = v.clone().requires_grad_(cts is not None)
                    self.leaves.append(v)
                return v
            if isinstance(v, (list, tuple)):
                return type(v)(leaf(x) for x in v)
            return v
        self.leaves = []
        x, args = leaf(sample.input), leaf(tuple(sample.args))
        kwargs = {k: leaf(v) for k, v in sample.kwargs.items()}
        self.out = tensors_of(info.op(x, *args, **kwargs))
        self.grads = []
        if cts is not None:
            ys = [y for y in self.out if y.dtype.is_floating_point and y.requires_grad]
            cts = [ct.to(y.dtype) for y, ct in zip(ys, cts)]
            grads = torch.autograd.grad(ys, self.leaves, cts, allow_unused=True)
            self.grads = [torch.zeros_like(x) if g is None else g
                          for g, x in zip(grads, self.leaves)]


def same_class(ours, exact, theirs):
    """Where NaN and infinities are those of PyTorch, in f64 or in the dtype itself."""
    def kind(t):
        t = t.to(torch.float64)
        return torch.where(t.isnan(), 3.0, torch.where(t.isinf(), t.sign(), 0.0))
    k = kind(ours)
    same = (k == kind(exact.to(ours.dtype))) | (k == kind(theirs))
    if ours.dtype != torch.float64:  # on the way there a narrow type may overflow one step earlier
        same |= ~ours.isfinite() & ~theirs.isfinite()
    return same


def gaps(t, exact):
    gap = (t.to(torch.float64) - exact).abs()
    return torch.where(exact.isfinite() & t.to(torch.float64).isfinite(), gap, 0.0)


def error_of(t, exact):
    return float(gaps(t, exact).max()) if t.numel() else 0.0


def worst(bad, ours, want):
    """The element where `bad` is largest."""
    at = int(bad.reshape(-1).to(torch.float64).argmax())
    return f"element {at} is {ours.reshape(-1)[at].item()}, PyTorch has {want.reshape(-1)[at].item()}"


def described(v):
    """A sample's operands, in words."""
    if isinstance(v, torch.Tensor):
        return f"{DTYPES.get(v.dtype, v.dtype)}{list(v.shape)}"
    if isinstance(v, (list, tuple)):
        return f"({', '.join(described(x) for x in v)})"
    if isinstance(v, dict):
        return f"({', '.join(f'{k}={described(x)}' for k, x in v.items())})"
    return repr(v)


def difference(ours, reference, exact, theirs, terms=0.0):
    """What is wrong with a result, or None. exact: in f64; theirs: in the dtype; terms: the largest
    of what is summed up, where that may cancel."""
    if list(ours.shape) != list(exact.shape):
        return f"shape {list(ours.shape)}, PyTorch has {list(exact.shape)}"
    if not ours.dtype.is_floating_point:
        want = theirs.to(ours.dtype)
        return None if torch.equal(ours, want) else worst(ours != want, ours, want)
    for which, t in (("compiled", ours), ("reference", reference)):
        same = same_class(t, exact, theirs)
        if not bool(same.all()):
            return f"{which}: NaN or inf differ: {worst(~same, t, theirs)}"
    finite = exact[exact.isfinite()].abs()
    scale = max(float(finite.max()) if finite.numel() else 0.0, terms)
    if ours.dtype == torch.float64:
        allowed = 2.0**-40 * scale
    else:
        allowed = 2 * max(error_of(theirs, exact), error_of(reference, exact))
        allowed += torch.finfo(ours.dtype).eps * scale
        allowed = max(allowed, torch.finfo(ours.dtype).tiny)
    for which, t in (("compiled", ours), ("reference", reference)):
        if error_of(t, exact) > allowed and (which == "compiled" or t.dtype == torch.float64):
            return (f"{which}: off by {error_of(t, exact):.3g}, allowed {allowed:.3g}: "
                    f"{worst(gaps(t, exact), t, exact)} in f64")
    return None


class Tally:
    def __init__(self):
        self.ran, self.skipped, self.failed = 0, collections.Counter(), []


def try_sample(tool, info, sample, dtype, grad, tally):
    def fail(what):
        call = described((sample.input, *sample.args)), described(sample.kwargs)
        tally.failed.append(f"{DTYPES[dtype]}{' gradient' if grad else ''} of {call[0]} {call[1]}: "
                            f"{what}")
    try:
        plain = Call(info, sample, wide=False)
    except (RuntimeError, NotImplementedError, IndexError, ValueError) as e:
        tally.skipped[f"PyTorch refuses it: {str(e).splitlines()[0][:60]}"] += 1
        return
    ys = [y for y in plain.out if y.dtype.is_floating_point]
    cts = None
    if grad:
        generator = torch.Generator().manual_seed(1)
        cts = [torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype)
               for y in ys]
    try:
        theirs = Call(info, sample, False, cts)
        exact = Call(info, sample, True, cts)
    except (RuntimeError, NotImplementedError) as e:
        tally.skipped[f"PyTorch has no f64 or gradient: {str(e).splitlines()[0][:60]}"] += 1
        return
    p = Program()
    p.torch_name, p.expected, p.dtype, p.indices_of_ties = info.name, plain.out, dtype, False
    try:
        results = COUNTERPARTS[info.name, info.variant_test_name or None](p, sample)
        lines = p.lines + [f"result {y.index}" for y in results]
        inputs = list(p.tensors)
        if grad:
            wrt = [k for k, t in enumerate(p.tensors) if t.dtype.is_floating_point]
            where = {id(t): v.index for t, v in zip(p.tensors, p.params.values())}
            lines.append(" ".join(map(str, ["grad", len(wrt),
                                            *(where[id(p.tensors[k])] for k in wrt)])))
            by_type = [y for y in results if y.dtype.is_floating_point]
            inputs += [ct.to(y.dtype) for ct, y in zip(cts, by_type)]
        compiled, reference = tool.run(lines, inputs)
    except Skip as e:
        tally.skipped[str(e)] += 1
        return
    except Refused as e:
        for part, why in REFUSALS.items():
            if part in str(e):
                tally.skipped[why] += 1
                return
        fail(f"refused: {e}")
        return
    tally.ran += 1
    if not grad:
        for i, (ours, ref, y, z) in enumerate(zip(compiled, reference, exact.out, theirs.out)):
            if i == 1 and p.indices_of_ties:
                continue  # PyTorch promises no order of ties; the values are compared
            if not ours.dtype.is_floating_point and not torch.equal(ours, ref):
                return fail(f"as compiled and by reference: {worst(ours != ref, ours, ref)}")
            wrong = difference(ours, ref, y.detach().to(torch.float64)
                               if ours.dtype.is_floating_point else y, z.detach())
            if wrong:
                return fail(f"result {i}: {wrong}")
        return
    when = GRADIENT_CONVENTIONS.get(info.name)
    if when and when[0](p, sample):
        tally.skipped[when[1]] += 1
        return
    # PyTorch's leaves stand in the order of the sample, ours in that of use: paired by value.
    n = len(results)
    terms = max((float(ct.abs().max()) for ct in cts if ct.numel()), default=0.0)
    order = leaf_order(sample)
    for k, (ours, ref) in enumerate(zip(compiled[n:], reference[n:])):
        t = p.tensors[wrt[k]]
        if id(t) not in order:
            continue
        i = order[id(t)]
        wrong = difference(ours, ref, exact.grads[i].to(torch.float64), theirs.grads[i], terms)
        if wrong:
            return fail(f"gradient {k}: {wrong}")


def leaf_order(sample):
    order = {}

    def visit(v):
        if isinstance(v, torch.Tensor):
            if v.dtype.is_floating_point:
                order[id(v)] = visit.count
                visit.count += 1
        elif isinstance(v, (list, tuple)):
            for x in v:
                visit(x)
    visit.count = 0
    for v in (sample.input, tuple(sample.args), *sample.kwargs.values()):
        visit(v)
    return order


@pytest.fixture(scope="session")
def tool():
    return Tool()


def tried(info, tool):
    tally = Tally()
    for dtype in DTYPES:
        for grad in (False, True):
            if not is_one_of(dtype, info, grad) or (grad and not info.supports_autograd):
                continue
            torch.manual_seed(1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for i, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=False)):
                    if i == SAMPLES:
                        break
                    try_sample(tool, info, sample, dtype, grad, tally)
    return tally


@pytest.mark.parametrize("info", infos(), ids=lambda i: i.full_name)
def test_samples_agree(info, tool, record_property):
    wanted = os.environ.get("TEGULA_OPINFO")
    if wanted and wanted != info.full_name:
        pytest.skip("TEGULA_OPINFO names another")
    tally = tried(info, tool)
    print(f"{info.full_name}: {tally.ran} programs;", dict(tally.skipped))
    record_property("programs", tally.ran)
    assert not tally.failed, f"{len(tally.failed)} of {tally.ran}:\n" + "\n".join(tally.failed[:20])
    assert tally.ran, f"no sample was tried: {dict(tally.skipped)}"


def test_every_op_has_a_counterpart_or_a_reason(tool):
    """Which ops the programs use is seen by writing them; the others say why."""
    used = set()
    for info in infos():
        for dtype in (torch.float64, torch.int64, torch.bool):
            if not is_one_of(dtype, info, False):
                continue
            for i, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=False)):
                if i == SAMPLES:
                    break
                p = Program()
                p.torch_name, p.dtype, p.indices_of_ties = info.name, dtype, False
                try:
                    p.expected = Call(info, sample, False).out
                    COUNTERPARTS[info.name, info.variant_test_name or None](p, sample)
                except (Skip, RuntimeError, NotImplementedError, IndexError, ValueError):
                    continue
                used |= {line.split()[1] for line in p.lines if line.startswith("op ")}
    missing = sorted(set(tool.ops) - used - set(NO_COUNTERPART))
    assert not missing, f"neither tried nor excused: {missing}"
