import copy
import dataclasses
import inspect

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own habit
from torch import nn

from infoshot import DataError, InvalidArgumentError, Prototype, ShapeError, solve
from infoshot.backbones import Backbone, Encoder, InputSpec, make_backbone
from infoshot.features import unit_length
from infoshot.features.extract import Extraction, extract_split
from infoshot.images import open_dataset
from infoshot.images.in_memory import load_crops
from infoshot.metrics import accuracy
from infoshot.reproduction.adaptation import FineTuner
from infoshot.reproduction.finetune import FineTuning
from infoshot.tasks import TaskSpec, sample_tasks
from infoshot.tasks.image_tasks import ImageTask, image_tasks
from tests.image_folders import make_folders

SPEC = TaskSpec(n_way=3, n_shot=2, n_query=4)
HOW = Extraction(resize=24, crop=20)
ABLATION = {
    "CE": FineTuning(n_steps=3, marginal_entropy_weight=0, conditional_entropy_weight=0),
    "CE + H(Y|X)": FineTuning(n_steps=3, marginal_entropy_weight=0),
    "CE - H(Y)": FineTuning(n_steps=3, conditional_entropy_weight=0),
    "CE - H(Y) + H(Y|X)": FineTuning(n_steps=3),
}


@pytest.fixture(scope="module")
def backbone():
    """Return a Conv-4 whose running statistics match no batch."""
    torch.manual_seed(0)
    network = make_backbone("conv4").eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 2)
    return network


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    root = make_folders(tmp_path_factory.mktemp("images"), n_images=7, size=(30, 34))
    return open_dataset("folder", root).split("test")


@pytest.fixture(scope="module")
def crops(split):
    return load_crops(split.records, HOW.resize, HOW.crop, n_workers=1)


@pytest.fixture
def task(crops, split):
    [(task, _)] = image_tasks(crops, split, SPEC, range(1))
    return task


def fine_tune(backbone, task, setting, *, amp=False):
    return FineTuner(backbone, setting, amp=amp)(task)


def slowly(backbone, task, setting, mode="train"):
    """Fine-tune as the module describes it, in plain PyTorch; ``mode`` is that of the end."""
    network, spec = copy.deepcopy(backbone).eval(), backbone.input_spec
    dtype = next(network.parameters()).dtype
    x_s, x_q = (spec.normalise(x.float() / 255).to(dtype) for x in (task.x_sup, task.x_qry))
    with torch.no_grad():
        z_s = F.normalize(network(x_s))
        w = torch.stack([z_s[task.y_sup == k].mean(0) for k in range(task.n_way)])
    w.requires_grad_()
    optimizer = torch.optim.Adam([*network.parameters(), w], lr=setting.learning_rate)
    network.train()

    def p_of(x):
        z = F.normalize(network(x))
        return (-setting.temperature / 2 * torch.cdist(z, w).square()).softmax(-1)

    for _ in range(setting.n_steps):
        p_s, p_q = p_of(x_s), p_of(x_q)
        ce = F.nll_loss(p_s.log(), task.y_sup)
        mean = p_q.mean(0)
        loss = setting.cross_entropy_weight * ce
        loss = loss + setting.marginal_entropy_weight * (mean * mean.log()).sum()
        loss = loss - setting.conditional_entropy_weight * (p_q * p_q.log()).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.train(mode == "train")
    return p_of(x_q).detach()


@pytest.mark.parametrize("row", ABLATION)
def test_three_steps_equal_plain_pytorch(row, backbone, task):
    network, setting = copy.deepcopy(backbone).double(), ABLATION[row]
    # A large step, so that the answer is far from that of no step at all.
    setting = dataclasses.replace(setting, learning_rate=1e-2)
    ours, theirs = fine_tune(network, task, setting), slowly(network, task, setting)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    assert (
        ours - slowly(network, task, dataclasses.replace(setting, n_steps=2))
    ).abs().max() > 0.01


def test_published_step_size_in_float32(backbone, task):
    p = fine_tune(backbone, task, FineTuning())
    assert p.dtype == torch.float32
    torch.testing.assert_close(p, slowly(backbone, task, FineTuning()), atol=1e-3, rtol=0)


def test_zero_steps_give_the_prototype_on_extracted_features(backbone, crops, split):
    checkpoint = Encoder("conv4", copy.deepcopy(backbone), "")
    extracted = extract_split("folder", split, checkpoint, HOW)
    table = dataclasses.replace(extracted, features=unit_length(extracted.features))
    tasks, query_labels = sample_tasks(table, SPEC, n_tasks=3)
    expected = solve(Prototype(), tasks).probabilities
    for i, (task, y_qry) in enumerate(image_tasks(crops, split, SPEC, range(3))):
        assert torch.equal(task.y_sup, tasks.y_sup[i])
        assert torch.equal(y_qry, query_labels[i])
        p = fine_tune(backbone, task, FineTuning(n_steps=0))
        torch.testing.assert_close(p, expected[i], atol=1e-5, rtol=0)


def test_accuracy_rises(backbone, crops, split):
    # From two noisy examples of each pattern; the descent must not spoil what prototypes know.
    setting = FineTuning(learning_rate=1e-3)
    for task, y_qry in image_tasks(crops, split, SPEC, range(2)):
        before, after = (
            accuracy(fine_tune(backbone, task, how)[None], y_qry[None])
            for how in (dataclasses.replace(setting, n_steps=0), setting)
        )
        assert after >= before
        assert after > 0.9


def _everything(network):
    tensors = {name: value.clone() for name, value in network.state_dict().items()}
    return tensors, [module.training for module in network.modules()]


def _assert_unchanged(network, before):
    tensors, modes = before
    assert all(torch.equal(value, tensors[name]) for name, value in network.state_dict().items())
    assert [module.training for module in network.modules()] == modes
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize("training", [False, True])
def test_weights_statistics_and_mode_do_not_change(training, backbone, task):
    network = copy.deepcopy(backbone).train(training)
    before = _everything(network)
    p = fine_tune(network, task, FineTuning(n_steps=2))
    _assert_unchanged(network, before)
    assert torch.equal(fine_tune(network, task, FineTuning(n_steps=2)), p)


class _Stumbling(Backbone):
    """Fails at its fourth pass, in the middle of the descent."""

    feature_dim, input_spec = 64, InputSpec()
    passes = 0

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images):
        type(self).passes += 1
        if self.passes == 4:
            raise RuntimeError("out of memory")
        return self.network(images)


def test_weights_and_statistics_do_not_change_after_an_exception(backbone, task):
    network = _Stumbling(copy.deepcopy(backbone))
    _Stumbling.passes = 0
    before = _everything(network)
    with pytest.raises(RuntimeError, match="out of memory"):
        fine_tune(network, task, FineTuning())
    _assert_unchanged(network, before)


def test_a_task_does_not_depend_on_earlier_tasks(backbone, crops, split):
    fine_tuner, setting = FineTuner(backbone, FineTuning(n_steps=2)), FineTuning(n_steps=2)
    one, two, three = (task for task, _ in image_tasks(crops, split, SPEC, range(3)))
    [(other, _)] = image_tasks(crops, split, TaskSpec(n_way=2, n_shot=1, n_query=3), range(1))
    for task in (one, two, other, three, one):  # the shape changes and comes back
        assert torch.equal(fine_tuner(task), fine_tune(backbone, task, setting))
    assert not torch.equal(fine_tuner(one), fine_tuner(two))


def test_a_task_does_not_depend_on_one_that_failed(backbone, task):
    fine_tuner = FineTuner(_Stumbling(copy.deepcopy(backbone)), FineTuning(n_steps=2))
    _Stumbling.passes = 0
    with pytest.raises(RuntimeError, match="out of memory"):
        fine_tuner(task)
    assert torch.equal(fine_tuner(task), fine_tune(backbone, task, FineTuning(n_steps=2)))


def test_a_callback_sees_predictions_in_evaluation_mode_at_every_step(backbone, task):
    network, setting = copy.deepcopy(backbone).double(), FineTuning(n_steps=3, learning_rate=1e-3)
    seen = []
    p = FineTuner(network, setting)(task, lambda predict: seen.append(predict().exp().squeeze(0)))
    assert len(seen) == 4
    for n_steps, ours in enumerate(seen):
        some = dataclasses.replace(setting, n_steps=n_steps)
        torch.testing.assert_close(ours, slowly(network, task, some, mode="eval"))
    assert torch.equal(fine_tune(network, task, setting), p)  # recording changes nothing
    assert not torch.allclose(seen[-1], p)


def test_a_callback_need_not_predict(backbone, task):
    calls, setting = [], FineTuning(n_steps=2)
    p = FineTuner(backbone, setting)(task, calls.append)
    assert len(calls) == 3
    assert torch.equal(fine_tune(backbone, task, setting), p)


def test_predictions_are_deterministic(crops, split):
    [(task, _)] = image_tasks(crops, split, SPEC, range(1))
    network = make_backbone("resnet12")  # has dropout
    first = fine_tune(network, task, FineTuning(n_steps=1))
    state = torch.get_rng_state()
    assert torch.equal(fine_tune(network, task, FineTuning(n_steps=1)), first)
    assert torch.equal(torch.get_rng_state(), state)


def test_frozen_parameters_are_updated_too(backbone, task):
    frozen = copy.deepcopy(backbone).requires_grad_(False)
    setting = FineTuning(n_steps=2)
    assert torch.equal(fine_tune(frozen, task, setting), fine_tune(backbone, task, setting))
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


def test_bfloat16_is_close(backbone, task):
    p, rough = (fine_tune(backbone, task, FineTuning(), amp=amp) for amp in (False, True))
    assert rough.dtype == torch.float32
    assert 0 < (p - rough).abs().max() < 0.1


def test_query_labels_cannot_be_passed():
    names = {field.name for field in dataclasses.fields(ImageTask)}
    assert names == {"x_sup", "y_sup", "x_qry", "n_way"}
    assert set(inspect.signature(FineTuner).parameters) == {"backbone", "setting", "amp"}
    call = inspect.signature(FineTuner.__call__).parameters
    assert set(call) == {"self", "task", "on_step"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_steps": -1}, "FineTuning: n_steps must be a whole number of at least 0; got -1"),
        ({"learning_rate": 0.0}, "FineTuning: learning_rate must be a finite number above 0"),
        ({"temperature": -15.0}, "FineTuning: temperature must be a finite number above 0"),
        ({"cross_entropy_weight": -1}, "FineTuning: cross_entropy_weight must be a finite number"),
        ({"marginal_entropy_weight": "1"}, "FineTuning: marginal_entropy_weight must be a finite"),
        ({"conditional_entropy_weight": float("nan")}, "conditional_entropy_weight .* got nan"),
    ],
)
def test_bad_settings_raise(changes, message, backbone, task):
    with pytest.raises(InvalidArgumentError, match=message):
        fine_tune(backbone, task, FineTuning(**changes))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"n_way": 1}, InvalidArgumentError, "n_way must be a whole number of at least 2"),
        ({"n_way": 4}, InvalidArgumentError, "task 0 has none of class 3"),
        ({"x_sup": torch.rand(6, 3, 9, 9)}, InvalidArgumentError, "x_sup must hold crops .* uint8"),
        ({"x_qry": torch.zeros(2, 9, 9)}, ShapeError, r"x_qry must have shape .* got \(2, 9, 9\)"),
        ({"y_sup": torch.arange(3)}, ShapeError, r"y_sup must have shape \(6,\), .* got \(3,\)"),
    ],
)
def test_bad_tasks_raise(changes, error, message, backbone, task):
    with pytest.raises(error, match=message):
        fine_tune(backbone, dataclasses.replace(task, **changes), FineTuning())


def test_crops_of_another_split_raise(crops, split):
    with pytest.raises(ShapeError, match=r"crops must be the 21 images of the split 'test'; got 5"):
        image_tasks(crops[:5], split, SPEC, range(1))


def test_too_few_images_raise_before_any_work(crops, split):
    with pytest.raises(DataError, match="n_way must be at most 3"):
        image_tasks(crops, split, TaskSpec(n_way=5), range(1))


def test_divergence_raises(backbone, task, monkeypatch):
    monkeypatch.setattr("infoshot.core.checks._LARGEST", float("inf"))
    with pytest.raises(DataError, match="diverged within 3 steps; a learning rate below 1e"):
        fine_tune(backbone, task, FineTuning(n_steps=3, learning_rate=1e37))


def test_broken_weights_raise(backbone, task):
    broken = copy.deepcopy(backbone)
    nn.init.constant_(next(broken.parameters()), float("nan"))
    with pytest.raises(InvalidArgumentError, match="features of the support must be finite"):
        fine_tune(broken, task, FineTuning())
