"""The baseline of the speed measurements: a direct, batched implementation of the paper's updates.

The method is usually implemented like this: features in rows, probabilities as
``(task, n, class)``, sums over samples as products with the features, TIM-GD with autograd and
``torch.optim.Adam``.
"""

import torch

TAU, LAM, ALPHA = 15.0, 0.1, 0.1


def _logits(z, w):
    distance = (z**2).sum(-1, keepdim=True) - 2 * z @ w.mT + (w**2).sum(-1).unsqueeze(1)
    return -TAU / 2 * distance


def _start(z_sup, y_sup, n_way):
    y = torch.nn.functional.one_hot(y_sup, n_way).to(z_sup.dtype)
    return y, y.mT @ z_sup / y.sum(1).unsqueeze(-1)


def tim_adm(tasks, n_steps=150):
    """Proposition 2."""
    z_s, z_q = tasks.z_sup, tasks.z_qry
    y, w = _start(z_s, tasks.y_sup, tasks.n_way)
    support, ratio = LAM / (1 + ALPHA), z_s.shape[1] / z_q.shape[1]
    for _ in range(n_steps):
        p_s, p_q = _logits(z_s, w).softmax(-1), _logits(z_q, w).softmax(-1)
        q = p_q ** (1 + ALPHA)
        q = q / q.sum(1, keepdim=True) ** 0.5
        q = q / q.sum(-1, keepdim=True)
        of_support = y.mT @ z_s + p_s.sum(1).unsqueeze(-1) * w - p_s.mT @ z_s
        of_query = q.mT @ z_q + p_q.sum(1).unsqueeze(-1) * w - p_q.mT @ z_q
        weight = support * y.sum(1) + ratio * q.sum(1)
        w = (support * of_support + ratio * of_query) / weight.unsqueeze(-1)
    return _logits(z_q, w).softmax(-1)


def tim_gd(tasks, n_steps=1000):
    """Gradient descent with autograd."""
    y, w = _start(tasks.z_sup, tasks.y_sup, tasks.n_way)
    w.requires_grad_()
    adam = torch.optim.Adam([w], lr=1e-4)
    for _ in range(n_steps):
        log_s = _logits(tasks.z_sup, w).log_softmax(-1)
        log_q = _logits(tasks.z_qry, w).log_softmax(-1)
        p_q = log_q.exp()
        p_hat = p_q.mean(1)
        cross = -(y * log_s).sum(-1).mean(1)
        marginal = -(p_hat * p_hat.log()).sum(-1)
        conditional = -(p_q * log_q).sum(-1).mean(1)
        loss = (LAM * cross - marginal + ALPHA * conditional).sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return _logits(tasks.z_qry, w.detach()).softmax(-1)


def alpha_tim(tasks, n_steps=1000, a=7.0):
    """Gradient descent with Tsallis entropies and autograd."""
    y, w = _start(tasks.z_sup, tasks.y_sup, tasks.n_way)
    w.requires_grad_()
    adam = torch.optim.Adam([w], lr=1e-4)
    for _ in range(n_steps):
        log_s = _logits(tasks.z_sup, w).log_softmax(-1)
        p_q = _logits(tasks.z_qry, w).softmax(-1)
        cross = -(y * log_s).sum(-1).mean(1)
        marginal = (1 - (p_q.mean(1) ** a).sum(-1)) / (a - 1)
        conditional = ((1 - (p_q**a).sum(-1)) / (a - 1)).mean(1)
        loss = (cross - marginal + conditional).sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return _logits(tasks.z_qry, w.detach()).softmax(-1)
