"""easyfsl beside a PyTorch without torchvision: it only needs four names from it to import."""

import sys
import types

import torch


def _stub(*_, **__):
    raise RuntimeError("this stub of torchvision only lets easyfsl import")


def easyfsl_tim(tasks, n_steps):
    """Its TIM over a batch, one task at a time, as it works. Returns the seconds' worth of work."""
    from easyfsl.methods import TIM

    for z_sup, y_sup, z_qry in zip(tasks.z_sup, tasks.y_sup, tasks.z_qry, strict=True):
        model = TIM(torch.nn.Identity(), fine_tuning_steps=n_steps)
        model.process_support_set(z_sup, y_sup)
        model(z_qry)


def easyfsl_method(name, tasks):
    """One of its other methods over a batch, one task at a time; the scores of all tasks."""
    import easyfsl.methods

    scores = []
    for z_sup, y_sup, z_qry in zip(tasks.z_sup, tasks.y_sup, tasks.z_qry, strict=True):
        model = getattr(easyfsl.methods, name)(torch.nn.Identity())
        model.process_support_set(z_sup, y_sup)
        scores.append(model(z_qry))
    return torch.stack(scores)


def install_torchvision_stub():
    """Put the stub where ``import torchvision`` finds it."""
    names = (
        "torchvision",
        "torchvision.models",
        "torchvision.models.resnet",
        "torchvision.transforms",
    )
    for name in names:
        sys.modules.setdefault(name, types.ModuleType(name))
    resnet = sys.modules["torchvision.models.resnet"]
    for name in ("BasicBlock", "Bottleneck", "conv1x1", "conv3x3"):
        setattr(resnet, name, type(name, (torch.nn.Module,), {}) if name[0] == "B" else _stub)
