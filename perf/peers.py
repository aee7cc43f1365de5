"""Run easyfsl without torchvision.

easyfsl imports four names of torchvision and does not use them here, so a stub is enough.
"""

import sys
import types

import torch


def _stub(*_, **__):
    raise RuntimeError("torchvision is a stub here: easyfsl can import it, but not use it")


def easyfsl_tim(tasks, n_steps):
    """Run its TIM on a batch, one task at a time, which is all that easyfsl supports."""
    from easyfsl.methods import TIM

    for z_sup, y_sup, z_qry in zip(tasks.z_sup, tasks.y_sup, tasks.z_qry, strict=True):
        model = TIM(torch.nn.Identity(), fine_tuning_steps=n_steps)
        model.process_support_set(z_sup, y_sup)
        model(z_qry)


def easyfsl_method(name, tasks):
    """Run another of its methods, one task at a time, and return the scores of all tasks."""
    import easyfsl.methods

    scores = []
    for z_sup, y_sup, z_qry in zip(tasks.z_sup, tasks.y_sup, tasks.z_qry, strict=True):
        model = getattr(easyfsl.methods, name)(torch.nn.Identity())
        model.process_support_set(z_sup, y_sup)
        scores.append(model(z_qry))
    return torch.stack(scores)


def install_torchvision_stub():
    """Register the stub, so that ``import torchvision`` finds it."""
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
