"""Constrained DDPO: steps against diffusers, gradients against closed forms."""

import copy
from typing import Any

import numpy as np
import pytest

from ecop.errors import UserError

torch = pytest.importorskip("torch", reason="needs ecop[finetune]: torch is missing")

from ecop.finetune.diffusion import (  # noqa: E402
    EcopDDPO,
    ddim_schedule,
    kl_to_come,
    log_prob,
    rollout,
    schedule_of,
    step_kl,
)

ABAR = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)


class Linear(torch.nn.Module):
    """eps(x, t) = w x + b per pixel: chains stay Gaussian."""

    def __init__(self, w=0.1, b=0.2):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor(w))
        self.b = torch.nn.Parameter(torch.tensor(b))

    def forward(self, x, t):
        return self.w * x + self.b


class Shift(torch.nn.Module):
    """The denoiser of N(0, 1) images, plus a shift b that is learned."""

    def __init__(self):
        super().__init__()
        self.b = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x, t):
        return (1 - ABAR[t]).sqrt().view(-1, 1, 1, 1) * x - self.b


def ink(images):
    return images.flatten(1).mean(1)


def trainer(**options) -> Any:
    denoiser = Linear()
    settings = {
        "denoiser": denoiser,
        "reference": copy.deepcopy(denoiser),
        "schedule": ddim_schedule(ABAR, 5),
        "reward": ink,
        "costs": {"dark": lambda images: -ink(images)},
        "limits": {"dark": 10.0, "kl": 1000.0},
        "optimiser": torch.optim.SGD(denoiser.parameters(), lr=0.1),
        "max_norm": 1e9,
    } | options
    if "denoiser" in options:
        settings["reference"] = copy.deepcopy(options["denoiser"])
    return EcopDDPO(**settings)


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize(("eta", "clip"), [(1.0, True), (0.5, False)])
def test_steps_are_those_of_diffusers(prediction, eta, clip):
    diffusers = pytest.importorskip("diffusers", reason="needs ecop[diffusers]")
    scheduler = diffusers.DDIMScheduler(
        prediction_type=prediction, clip_sample=clip, set_alpha_to_one=False
    )
    schedule = schedule_of(scheduler, 10, eta=eta, least_std=1e-6)
    torch.manual_seed(0)
    x, predicted, noise = (torch.randn(3, 1, 4, 4) for _ in range(3))
    for k, t in enumerate(scheduler.timesteps):
        theirs = scheduler.step(predicted, t, x, eta=eta, variance_noise=noise)
        ours = schedule.mean(k, x, predicted) + schedule.std[k] * noise
        torch.testing.assert_close(ours, theirs.prev_sample, atol=1e-5, rtol=1e-5)


def test_our_own_schedule_is_the_schedulers():
    diffusers = pytest.importorskip("diffusers", reason="needs ecop[diffusers]")
    scheduler = diffusers.DDIMScheduler(
        beta_start=1e-4, beta_end=0.02, clip_sample=False
    )
    theirs, ours = schedule_of(scheduler, 10), ddim_schedule(ABAR, 10)
    for one, other in zip(ours[:3], theirs[:3], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_log_prob_and_kl_against_torch():
    torch.manual_seed(0)
    x, mean, other = (torch.randn(3, 2, 4) for _ in range(3))
    std = torch.tensor(0.7)
    ours = torch.distributions.Normal(mean, std)
    theirs = torch.distributions.Normal(other, std)
    torch.testing.assert_close(log_prob(x, mean, std), ours.log_prob(x).sum((1, 2)))
    kl = torch.distributions.kl_divergence(ours, theirs).sum((1, 2))
    torch.testing.assert_close(step_kl(mean, other, std), kl)


def test_kl_to_come_against_loops():
    kl = torch.rand(4, 3)
    found = kl_to_come(kl)
    for n in range(4):
        for k in range(3):
            later = kl[:, k + 1 :].sum(1)
            assert found[n, k].item() == pytest.approx(
                (later[n] - later.mean()).item(), abs=1e-6
            )


def exact_chain_kl(schedule, w, b, reference):
    """E[sum_k KL_k] of a chain of one pixel: means and variances, no sampling."""
    mean, variance, total = torch.zeros(()), torch.ones(()), torch.zeros(())
    for k in range(len(schedule.times)):
        zero, one = torch.zeros(()), torch.ones(())
        shift = schedule.mean(k, zero, b)
        slope = schedule.mean(k, one, w + b) - shift
        other_shift = schedule.mean(k, zero, reference.b)
        other_slope = schedule.mean(k, one, reference.w + reference.b) - other_shift
        d_shift, d_slope = shift - other_shift, slope - other_slope
        square = (d_shift + d_slope * mean) ** 2 + d_slope**2 * variance
        total = total + square / (2 * schedule.std[k] ** 2)
        mean, variance = (
            shift + slope * mean,
            slope**2 * variance + schedule.std[k] ** 2,
        )
    return total


def test_the_kls_gradient_is_exact():
    """Both terms: closed form of each step, and the score function of what follows."""
    schedule = ddim_schedule(ABAR, 4, least_std=0.2)
    denoiser, reference = Linear(0.3, 0.4), Linear(0.1, 0.2)
    w, b = (p.detach().clone().requires_grad_() for p in denoiser.parameters())
    exact = exact_chain_kl(schedule, w, b, reference)
    slopes = torch.autograd.grad(exact, [w, b])
    count = 200_000
    made = EcopDDPO(
        denoiser=denoiser,
        reference=reference,
        schedule=schedule,
        reward=lambda images: torch.zeros(len(images)),
        costs={},
        limits={"kl": -1e9},  # always above: the price is the bound
        optimiser=torch.optim.SGD(denoiser.parameters(), lr=1.0),
        bound=1.0,
        max_norm=1e9,
    )
    generator = torch.Generator().manual_seed(0)
    chains = rollout(denoiser, reference, schedule, (count, 1), generator)
    assert chains.kl.sum(1).mean().item() == pytest.approx(exact.item(), rel=0.02)
    before = [p.item() for p in denoiser.parameters()]
    made.step((count, 1), generator)
    unit = float(made.prices.scale[0])
    for old, new, slope in zip(before, denoiser.parameters(), slopes, strict=True):
        assert (old - new.item()) * unit == pytest.approx(slope.item(), rel=0.02)


def test_slack_limits_leave_plain_policy_gradient():
    made = trainer()
    twin = copy.deepcopy(made.denoiser)
    generator = torch.Generator().manual_seed(0)
    made.step((8, 1, 2, 2), torch.Generator().manual_seed(0))
    chains = rollout(twin, made.reference, made.schedule, (8, 1, 2, 2), generator)
    reward = ink(chains.images)
    adv = (reward - reward.mean()) / (reward.std() + 1e-6)
    loss = torch.zeros(())
    for k, t in enumerate(made.schedule.times):
        x = chains.path[k]
        mean = made.schedule.mean(k, x, twin(x, t))
        logp = log_prob(chains.path[k + 1], mean, made.schedule.std[k])
        loss = loss - (adv * logp).mean()
    loss.backward()
    for ours, theirs in zip(made.denoiser.parameters(), twin.parameters(), strict=True):
        assert theirs.grad is not None
        expected = theirs.detach() - 0.1 * theirs.grad
        torch.testing.assert_close(ours.detach(), expected, rtol=1e-4, atol=1e-5)


def test_psi_is_measured_anew_in_later_epochs():
    """The predicted rise of the KL is the true one of the moved denoiser."""
    made = trainer(schedule=ddim_schedule(ABAR, 4, least_std=0.2))
    shape = (20_000, 1)
    generator = torch.Generator().manual_seed(1)
    chains = rollout(made.denoiser, made.reference, made.schedule, shape, generator)
    reward = ink(chains.images)
    _, cost_adv, _, _ = made._advantages(chains, reward, [-reward])
    torch.testing.assert_close(made._rise(chains, cost_adv), torch.zeros(2))
    with torch.no_grad():
        made.denoiser.b += 0.02
    predicted = made._rise(chains, cost_adv) * torch.tensor(made.prices.scale).float()
    moved = rollout(made.denoiser, made.reference, made.schedule, shape, generator)
    true = moved.kl.sum(1).mean() - chains.kl.sum(1).mean()
    assert predicted[1].item() == pytest.approx(true.item(), rel=0.2)
    assert true > 0


@pytest.mark.parametrize("epochs", [1, 3])
def test_kl_limit_holds(epochs):
    denoiser = Shift()
    made = trainer(
        denoiser=denoiser,
        costs={},
        limits={"kl": 0.5},
        schedule=ddim_schedule(ABAR, 5, least_std=0.2),
        optimiser=torch.optim.Adam(denoiser.parameters(), lr=3e-3 / epochs),
        epochs=epochs,
    )
    generator = torch.Generator().manual_seed(0)
    rows = [made.step((64, 1, 2, 2), generator) for _ in range(150)]
    late = np.mean([row["kl"] for row in rows[-50:]])
    assert late == pytest.approx(0.5, rel=0.1)
    assert rows[-1]["reward"] > rows[0]["reward"] + 0.1
    assert max(row["constraints"]["kl"]["price"] for row in rows[-50:]) > 0


def test_a_cost_limit_holds():
    denoiser = Shift()
    made = trainer(
        denoiser=denoiser,
        costs={"bright": lambda images: (ink(images) > 0).float()},
        limits={"bright": 0.7, "kl": 100.0},
        schedule=ddim_schedule(ABAR, 5, least_std=0.2),
        optimiser=torch.optim.Adam(denoiser.parameters(), lr=3e-3),
        beta=3.0,
        rate=0.1,
    )
    generator = torch.Generator().manual_seed(0)
    rows = [made.step((128, 1, 2, 2), generator) for _ in range(200)]
    late = [row["constraints"]["bright"]["cost"] for row in rows[-100:]]
    assert np.mean(late) == pytest.approx(0.7, abs=0.05)


def test_a_pipeline_of_diffusers_is_trained_in_place(tmp_path):
    diffusers = pytest.importorskip("diffusers", reason="needs ecop[diffusers]")
    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
    )
    pipeline = diffusers.DDIMPipeline(unet, diffusers.DDIMScheduler())
    before = copy.deepcopy(unet.state_dict())
    made = EcopDDPO.from_pipeline(
        pipeline,
        steps=4,
        optimiser=lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
        reward=ink,
        costs={"dark": lambda images: -ink(images)},
        limits={"dark": 0.1, "kl": 1.0},
    )
    for _ in range(2):
        row = made.step((4, 1, 8, 8), torch.Generator().manual_seed(0))
    assert row["images"].shape == (4, 1, 8, 8)
    assert row["kl"] > 0
    changed = [not torch.equal(before[k], v) for k, v in unet.state_dict().items()]
    assert any(changed)
    pipeline.save_pretrained(tmp_path)
    again = diffusers.DDIMPipeline.from_pretrained(tmp_path)
    for name, value in again.unet.state_dict().items():
        assert torch.equal(value, unet.state_dict()[name])


WORDS = ["<start>", "<end>", "<pad>", "a", "red", "blue", "ball"]


def prompted_pipeline() -> Any:
    """A Stable Diffusion of a few thousand weights."""
    diffusers = pytest.importorskip("diffusers", reason="needs ecop[diffusers]")
    transformers = pytest.importorskip("transformers", reason="needs ecop[trl]")
    tokenizers = pytest.importorskip("tokenizers", reason="needs ecop[trl]")
    torch.manual_seed(0)
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, "<pad>")
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<start>",
        eos_token="<end>",
        pad_token="<pad>",
        model_max_length=8,
    )
    text = transformers.CLIPTextModel(
        transformers.CLIPTextConfig(
            vocab_size=len(WORDS),
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=2,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=8,
        )
    )
    unet = diffusers.UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        cross_attention_dim=16,
        attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    vae = diffusers.AutoencoderKL(
        block_out_channels=(8,), norm_num_groups=4, latent_channels=4
    )
    return diffusers.StableDiffusionPipeline(
        vae,
        text.eval(),
        tokenizer,
        unet.eval(),
        diffusers.DDIMScheduler(
            clip_sample=False, set_alpha_to_one=False, steps_offset=1
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def prompted(pipeline, **options) -> Any:
    return EcopDDPO.from_pipeline(
        pipeline,
        steps=4,
        optimiser=lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
        reward=lambda images, prompts: ink(images),
        costs={"red": lambda images, prompts: [float("red" in p) for p in prompts]},
        limits={"red": 0.6, "kl": 1.0},
        **options,
    )


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_a_prompted_pipeline_draws_as_diffusers_does(guidance):
    pipeline = prompted_pipeline()
    made = prompted(pipeline, guidance=guidance, least_std=1e-6)
    texts = ["a red ball", "a blue ball"]
    shape = (2, 4, 8, 8)
    chains = rollout(
        made.denoiser,
        made.reference,
        made.schedule,
        shape,
        torch.Generator().manual_seed(0),
        made.encode(texts),
    )
    pipeline.set_progress_bar_config(disable=True)
    theirs = pipeline(
        texts,
        height=8,
        width=8,
        num_inference_steps=4,
        guidance_scale=guidance,
        eta=1.0,
        generator=torch.Generator().manual_seed(0),
        output_type="latent",
    ).images
    torch.testing.assert_close(chains.images, theirs, rtol=1e-3, atol=1e-3)
    assert (chains.images[0] - chains.images[1]).abs().max() > 0.1
    assert made.decode(chains.images).shape == (2, 3, 8, 8)


def test_a_prompted_pipeline_is_trained(tmp_path):
    pipeline = prompted_pipeline()
    before = {
        name: copy.deepcopy(part.state_dict())
        for name, part in pipeline.components.items()
        if isinstance(part, torch.nn.Module)
    }
    made = prompted(pipeline, guidance=2.0)
    for _ in range(2):
        row = made.step((8, 4, 8, 8), prompts=["a red ball", "a blue ball"])
    assert row["constraints"]["red"]["cost"] == 0.5
    assert row["constraints"]["red"]["error"] == 0.0  # every prompt has its baseline
    assert row["images"].shape == (8, 3, 8, 8)
    assert row["kl"] > 0
    for name, state in before.items():
        now = getattr(pipeline, name).state_dict()
        same = all(torch.equal(state[key], now[key]) for key in state)
        assert same == (name != "unet"), name


def test_prompts_that_do_not_fit():
    pipeline = prompted_pipeline()
    shape = (8, 4, 8, 8)
    with pytest.raises(UserError, match="if, and only if"):
        prompted(pipeline).step(shape)
    with pytest.raises(UserError, match="if, and only if"):
        trainer().step((4, 1, 2, 2), prompts=["a"])
    with pytest.raises(UserError, match="cannot be shared by 3 prompts"):
        prompted(pipeline).step(shape, prompts=["a", "red", "ball"])
    with pytest.raises(UserError, match="a list of texts"):
        prompted(pipeline).step(shape, prompts="a")
    with pytest.raises(UserError, match="guidance must be 1 or more"):
        prompted(pipeline, guidance=0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limits": {"kl": 1.0}}, r"\['dark'\] has only one"),
        ({"limits": {"dark": 1.0, "late": 2.0}}, r"\['late'\] has only one"),
        ({"costs": {"kl": ink}, "limits": {"kl": 1.0}}, "measured by itself"),
        ({"epochs": 0}, "1 or more"),
    ],
)
def test_wrong_uses(options, message):
    with pytest.raises(UserError, match=message):
        trainer(**options)


def test_scores_that_cannot_be_used():
    shape = (4, 1, 2, 2)
    with pytest.raises(UserError, match="'dark' returned NaN"):
        trainer(costs={"dark": lambda images: ink(images) / 0 * 0}).step(shape)
    with pytest.raises(UserError, match="one number for each of the 4 images"):
        trainer(reward=lambda images: images).step(shape)
    with pytest.raises(UserError, match="steps must lie between"):
        ddim_schedule(ABAR, 0)
    with pytest.raises(UserError, match="least_std positive"):
        ddim_schedule(ABAR, 5, least_std=0.0)
