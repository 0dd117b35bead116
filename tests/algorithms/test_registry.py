"""What every algorithm keeps; a new entry of the registry is covered at once."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ecop.algorithms import ALGORITHMS
from ecop.errors import UserError
from ecop.learning.options import values
from ecop.types import Box, Discrete
from probes import FAST, compiled, random_problem, with_scales

SMALL = {"minibatches": 2}
# e-COP has a second loop, the pass from t = H to 1.
VARIANTS = {"ecop_backward": ("ecop", {"backward_steps": 3})}


def make(name, **options):
    name, own = VARIANTS.get(name, (name, {}))
    kind = ALGORITHMS[name]
    known = {k: v for k, v in SMALL.items() if k in values(kind())}
    return kind(**{**known, **own, **options})


def iterate(algorithm, problem, batch=None, count=2):
    """Two iterations on the same batch: the second meets the state of the first."""
    spec, policy, params, default = problem
    state = algorithm.init(policy, params, spec)
    run = compiled(algorithm, policy)
    for i in range(count):
        key = jax.random.key(i)
        params, state, info = run(key, params, state, batch or default)
    return params, state, info


def close(a, b, rtol=1e-3, atol=1e-5):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol, atol), a, b)


def distance(a, b):
    gaps = jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), a, b)
    return max(jax.tree.leaves(gaps))


slow = pytest.mark.slow
CASES = [
    ("time", Box(2), 1),
    ("per_step", Discrete(3), 2),
    ("time", Discrete(3), 0),
    ("per_step", Box(2), 1),
    ("stationary", Box(2), 2),
    ("stationary", Discrete(3), 1),
]
FORMS = ("time", "per_step", "stationary")
ALL = [*CASES, *itertools.product(FORMS, (Box(2), Discrete(3)), range(3))]
# Compiling takes the time, so in the fast suite these stand for their kind: minibatch
# descent, a gate, a trust region. A backward pass per step is another one again.
FAST_CASES = {"ecop": 2, "focops": 2, "cpo": 2, "trpo_lag": 2, "ecop_backward": 4}


def contract_cases():
    for name in (*ALGORITHMS, *VARIANTS):
        cases = dict.fromkeys(ALL) if name.startswith("ecop") else CASES
        for i, case in enumerate(cases):
            marks = [] if i < FAST_CASES.get(name, 1) else [slow]
            yield pytest.param(name, *case, marks=marks)


@pytest.mark.parametrize(("name", "form", "action", "count"), list(contract_cases()))
def test_contract(name, form, action, count):
    algorithm = make(name)
    problem = random_problem(form, action, count)
    spec, policy, params, batch = problem
    state = algorithm.init(policy, params, spec)
    new, after, info = first = iterate(algorithm, problem, count=1)
    assert jax.tree.structure((params, state)) == jax.tree.structure((new, after))
    for old, fresh in zip(
        jax.tree.leaves((params, state)), jax.tree.leaves((new, after)), strict=True
    ):
        assert old.shape == fresh.shape
        assert old.dtype == fresh.dtype
        assert not fresh.weak_type
        assert np.isfinite(fresh).all()
    assert info["multipliers"].shape == (count,)
    scalars = {"loss", "gradient_norm"}
    assert scalars <= info.keys()
    assert all(info[x].shape == () for x in info.keys() - {"multipliers"})
    assert all(np.isfinite(x).all() for x in info.values())
    assert distance(params, new) > 1e-5
    again = iterate(algorithm, problem, count=1)
    jax.tree.map(np.testing.assert_array_equal, first, again)

    # Dead steps have no effect.
    dead = batch.alive == 0.0
    wide = dead[..., None] if isinstance(action, Box) else dead
    changed = batch._replace(
        observation=jnp.where(dead[..., None], 7.0, batch.observation),
        action=jnp.where(wide, jnp.ones_like(batch.action), batch.action),
    )
    close(iterate(algorithm, problem), iterate(algorithm, problem, changed))

    # Scaling a reward, or a cost with its limit, changes nothing.
    factor = jnp.asarray([37.0, 0.1][:count], jnp.float32)
    scaled = batch._replace(
        adv=37.0 * batch.adv,
        cost_adv=batch.cost_adv * factor[None, None],
        cost_error=batch.cost_error * factor,
        violation=batch.violation * factor,
    )
    scaled = with_scales(scaled)
    one, two = iterate(algorithm, problem), iterate(algorithm, problem, scaled)
    close(one[0], two[0], rtol=1e-2, atol=1e-4)
    multipliers = (one[2]["multipliers"], two[2]["multipliers"])
    close(*multipliers, rtol=1e-2, atol=1e-4)


# One of each kind of control flow; the rest is slow only because it compiles twice.
MAPPED = {"focops", "cpo", "ecop_backward"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[] if n in MAPPED else [slow])
        for n in (*ALGORITHMS, *VARIANTS)
    ],
)
def test_seeds_can_be_mapped(name):
    algorithm = make(name)
    problems = [random_problem(seed=seed) for seed in (0, 1)]
    spec, policy, _, _ = problems[0]
    stack = functools.partial(jax.tree.map, lambda *x: jnp.stack(x))
    params, batches = ([p[i] for p in problems] for i in (2, 3))
    states = [algorithm.init(policy, p, spec) for p in params]
    keys = jax.random.split(jax.random.key(3), 2)

    def update(key, params, state, batch):
        return algorithm.update(key, policy, params, state, batch)

    run = jax.jit(jax.vmap(update), compiler_options=FAST)
    together = run(keys, stack(*params), stack(*states), stack(*batches))
    for i in range(2):
        alone = compiled(algorithm, policy)(keys[i], params[i], states[i], batches[i])
        mine = jax.tree.map(lambda x, i=i: x[i], together)
        close(mine[:2], alone[:2], rtol=1e-2, atol=1e-4)


# A value for each field that must change the result, and what it needs to matter.
LOOP = {
    "epochs": 3,
    "minibatches": 3,
    "kl_goal": 0.5,
    "target_kl": 1e-5,
    "learning_rate": 0.02,
}
CLIPPED = {**LOOP, "clip": 0.01}
ASCENT = {"multiplier_rate": 1.0, "multiplier_rule": "adam"}
REGION = {
    "target_kl": 0.05,
    "damping": 1.0,
    "cg_steps": 1,
    "line_search_tries": 1,
    "line_search_decay": 0.3,
}
KNOBS = {
    "ecop": {
        **CLIPPED,
        "beta": 3.0,
        "multiplier_rate": 1.0,
        "caution": 0.0,
        "beta_growth": 1.5,
        "beta_relax": 1.5,
        "beta_max": 2.5,
        "penalty": "paper",
        "units": "paper",
        "backward_steps": 2,
    },
    "ppo": CLIPPED,
    "ppo_lag": {**CLIPPED, **ASCENT},
    "cppo_pid": {
        **CLIPPED,
        "proportional": 1.0,
        "integral": 0.1,
        "derivative": 20.0,
        "error_memory": 0.9,
        "cost_memory": 0.1,
        "delay": 1,
    },
    "focops": {
        **LOOP,
        **ASCENT,
        "temperature": 2.0,
        "gate": 0.001,
        "multiplier_max": 0.05,
    },
    "p3o": {**CLIPPED, "weight": 1.0, "growth": 2.0, "weight_max": 0.7},
    "ipo": {**CLIPPED, "sharpness": 1.0, "slope_max": 1.0},
    "appo": {
        **CLIPPED,
        "penalty": 1.0,
        "growth": 2.0,
        "progress": 2.0,
        "penalty_max": 3.0,
        **ASCENT,
    },
    "pdo": {**LOOP, **ASCENT},
    "trpo_lag": {**REGION, **ASCENT},
    "cpo": REGION,
    "pcpo": {**REGION, "projection": "l2"},
}
BASE = {  # by field: the other options under which it matters
    ("ecop", "beta_max"): {"beta_growth": 2.0, "beta": 2.0},
    ("ecop", "beta_relax"): {"beta_growth": 2.0, "beta": 2.0},
    ("p3o", "weight_max"): {"growth": 2.0, "weight": 0.5},
    ("appo", "progress"): {"growth": 2.0},
    ("appo", "penalty_max"): {"growth": 2.0},
    ("pdo", "target_kl"): {"epochs": 3},
}
# The curve of the barrier shows inside the limit only.
INSIDE = {("ipo", "sharpness")}
# What a falling violation changes.
FALLS = {("ecop", "beta_relax")}
# The step of these must be too long at first, for the line search to matter.
SEARCHES = {"line_search_tries", "line_search_decay"}


def test_every_field_has_a_knob():
    assert KNOBS.keys() == ALGORITHMS.keys()
    for name, knobs in KNOBS.items():
        assert knobs.keys() == values(ALGORITHMS[name]()).keys(), name


def each_field():
    for name, knobs in KNOBS.items():
        for field in knobs:
            # PPO stands for the shared loop, CPO for the trust region.
            own = name in {"ecop", "ppo", "cpo"} or field in ASCENT
            marks = [] if own and name not in {"pdo", "trpo_lag"} else [slow]
            yield pytest.param(name, field, marks=marks)


@pytest.mark.parametrize(("name", "field"), list(each_field()))
def test_every_field_is_alive(name, field):
    options = dict(BASE.get((name, field), {}))
    if "learning_rate" in KNOBS[name]:
        options.setdefault("learning_rate", 0.01)
    if field in SEARCHES:
        options["target_kl"] = 2.0  # far outside the quadratic model
    base = make(name, **options)
    other = make(name, **{**options, field: KNOBS[name][field]})
    assert base != other, "the knob is the default"
    problem = random_problem()
    sign = -1.0 if (name, field) in INSIDE else 1.0
    batches = [
        problem[3]._replace(violation=jnp.full(1, sign * x, jnp.float32))
        for x in ((2.0, -2.0, 4.0) if (name, field) in FALLS else (2.0, 4.0, 4.0))
    ]
    ends = []
    for algorithm in (base, other):
        spec, policy, params, _ = problem
        state = algorithm.init(policy, params, spec)
        run = compiled(algorithm, policy)
        for i, part in enumerate(batches):
            params, state, _ = run(jax.random.key(i), params, state, part)
        ends.append(params)
    assert distance(*ends) > 1e-6


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_bad_options_are_refused(name):
    for field, value in KNOBS[name].items():
        wrong = {int: [-1, 1.5], float: [-1.0, float("nan"), "x"], str: ["zzz"]}
        wrong = wrong[type(value)]
        for bad in wrong:
            with pytest.raises(UserError, match=field):
                make(name, **{field: bad})
