r"""LEO, latent embedding optimisation: class weights are decoded from codes that adapt to a task.

It works on fixed features of unit length. Instead of the many weights of a linear classifier, each
task optimises one short code per class, from which a learnt decoder computes the weights.

*Encode.* Every pair of support samples passes through a relation network g; their mean over the
samples i of class k and all samples j is the distribution of the code of class k,

.. math:: (\mu_k, u_k) = \frac{1}{|S_k| |S|} \sum_{i \in S_k} \sum_{j \in S} g(E x_i, E x_j),
          \qquad c_k \sim N(\mu_k, \sigma_k^2)

*Decode.* :math:`D c_k` gives mean and scale of the weights, :math:`w_k \sim N(\mu^w_k,
\sigma^{w2}_k)`; the scales are those of ``gaussian_weights.py``.

*Adapt.* With L the cross-entropy of the support under scores :math:`w_k^\top x`, five steps on the
codes, then five on the decoded weights, with learnt rates per coordinate:

.. math:: c_k \leftarrow c_k - a \odot \nabla_{c_k} L, \qquad
          w_k \leftarrow w_k - b \odot \nabla_{w_k} L, \qquad
          L = -\frac{K}{|S|} \sum_{i \in S} \log p(y_i | x_i)

Training minimises the cross-entropy of the queries with the adapted weights plus

.. math:: \beta \, KL(N(\mu, \sigma^2) \| N(0, 1)) + \gamma \, \|\mathrm{stop}(c') - c\|^2
          + \lambda_1 \tfrac12 \|\theta\|^2 + \lambda_2 \|C(D) - I\|^2

where KL, the distance of adapted codes c' to codes c, and the distance of the correlations C of the
decoder's columns to the identity are means over their entries. It differentiates through the steps.

What is learnt: E, g, D, the rates a and b; not the backbone. Codes and weights are drawn, and
features dropped out, in training only. At test time codes and weights are their means, and a query
is classified by its scores.

Cost: :math:`|S|^2` passes through the relation network and ten products of support and weights per
task.

Reference: A. A. Rusu, D. Rao, J. Sygnowski, O. Vinyals, R. Pascanu, S. Osindero, R. Hadsell.
Meta-Learning with Latent Embedding Optimization. ICLR 2019; details from the authors' code.

What differs from the original: the KL divergence is exact, where the authors estimate it from the
drawn code. They draw and decode a code for each support sample and average the weights; here each
class has one code, as in their paper, and the factor K / |S| of L makes the steps as long as
theirs. Any number of ways and unequal shots work.
"""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, normalize

from infoshot.core import checks
from infoshot.solvers.objective import class_means, class_rows
from infoshot.training.episodic.gaussian_weights import (
    SMALLEST_SCALE,
    glorot_scale,
    split_gaussian,
)
from infoshot.training.episodic.head import Episodes, Head, query_cross_entropy


@final
class Leo(Head):
    """Latent embedding optimisation; defaults are the published ones of mini-ImageNet, 1 shot.

    Parameters
    ----------
    dim, n_base_classes
        As in :class:`Head`; base classes are not used.
    n_latents
        Length of a code.
    n_latent_steps, n_weight_steps
        Gradient steps on codes and on weights.
    latent_rate, weight_rate
        Step sizes before training.
    dropout
        Share of the features that training drops, each time that they are used.
    kl_weight, latent_penalty_weight, orthogonality_weight, l2_weight
        Weights of the terms beside the cross-entropy: beta, gamma, lambda_2 and lambda_1.
    """

    def __init__(
        self,
        dim: int,
        n_base_classes: int,
        *,
        n_latents: int = 64,
        n_latent_steps: int = 5,
        n_weight_steps: int = 5,
        latent_rate: float = 1.0,
        weight_rate: float = 1e-3,
        dropout: float = 0.307651,
        kl_weight: float = 0.756143,
        latent_penalty_weight: float = 5.756821e-6,
        orthogonality_weight: float = 0.188103,
        l2_weight: float = 3.623413e-10,
    ) -> None:
        super().__init__(dim, n_base_classes)
        self.n_latent_steps, self.n_weight_steps = n_latent_steps, n_weight_steps
        self.dropout, self.kl_weight = dropout, kl_weight
        self.latent_penalty_weight = latent_penalty_weight
        self.orthogonality_weight, self.l2_weight = orthogonality_weight, l2_weight
        checks.at_least("n_latents", n_latents, 1)
        checks.share_below_one("dropout", dropout)
        for name in ("n_latent_steps", "n_weight_steps"):
            checks.at_least(name, getattr(self, name), 0)
        for name in ("kl", "latent_penalty", "orthogonality", "l2"):
            checks.not_negative(f"{name}_weight", getattr(self, f"{name}_weight"))
        self.encoder = nn.Linear(dim, n_latents, bias=False)
        self.relation = nn.Sequential(
            nn.Linear(2 * n_latents, 2 * n_latents, bias=False),
            nn.ReLU(),
            nn.Linear(2 * n_latents, 2 * n_latents, bias=False),
            nn.ReLU(),
            nn.Linear(2 * n_latents, 2 * n_latents, bias=False),
        )
        self.decoder = nn.Linear(n_latents, 2 * dim, bias=False)
        self.latent_rates = nn.Parameter(torch.full((n_latents,), latent_rate))
        self.weight_rates = nn.Parameter(torch.full((dim,), weight_rate))
        for matrix in self._matrices():
            nn.init.xavier_uniform_(matrix)

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Classify the queries by class weights that are adapted to the support."""
        weights = self.prototypes(z_sup, y_sup, n_way)
        return torch.log_softmax(_unit(z_qry) @ weights.mT, dim=-1)

    def prototypes(self, z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
        """Return the adapted class weights, ``(task, class, dim)``."""
        return self._adapt(_unit(z_sup), y_sup, n_way)[0]

    def loss(self, episodes: Episodes) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy of the queries plus four penalties, and log-probabilities."""
        support = _unit(episodes.z_sup), episodes.y_sup, episodes.n_way
        weights, penalties = self._adapt(*support)
        log_p = torch.log_softmax(self._drop(_unit(episodes.z_qry)) @ weights.mT, dim=-1)
        squares = torch.stack([matrix.square().sum() for matrix in self._matrices()]).sum()
        loss = query_cross_entropy(log_p, episodes.y_qry) + penalties
        loss = loss + self.l2_weight / 2 * squares
        return loss + self.orthogonality_weight * self._correlation(), log_p

    def _adapt(self, x: Tensor, y: Tensor, n_way: int) -> tuple[Tensor, Tensor]:
        """Return adapted weights ``(task, class, dim)`` and the penalties of the codes."""
        mean, scale = split_gaussian(self._encode(x, y, n_way), start=0.0)
        start = mean + scale * torch.randn_like(mean) if self.training else mean
        codes, weights, slope = start, *self._decode(start)
        for _ in range(self.n_latent_steps):
            gradient = self._gradient(weights, x, y)
            by_decoded = slope * torch.cat((gradient, gradient), dim=-1)
            codes = codes - self.latent_rates * (by_decoded @ self.decoder.weight)
            weights, slope = self._decode(codes)
        for _ in range(self.n_weight_steps):
            weights = weights - self.weight_rates * self._gradient(weights, x, y)
        kl = (scale.square() + mean.square() - 1) / 2 - scale.log()
        moved = (codes.detach() - start).square()
        return weights, self.kl_weight * kl.mean() + self.latent_penalty_weight * moved.mean()

    def _encode(self, x: Tensor, y: Tensor, n_way: int) -> Tensor:
        """Return the distribution of the codes, ``(task, class, 2 * latent)``."""
        encoded = self.encoder(self._drop(x))
        n_sup = encoded.shape[1]
        left = encoded.unsqueeze(2).expand(-1, -1, n_sup, -1)
        right = encoded.unsqueeze(1).expand(-1, n_sup, -1, -1)
        related = self.relation(torch.cat((left, right), dim=-1)).mean(2)
        return class_means(related, y, n_way)

    def _decode(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights ``(task, class, dim)`` and their derivative by the decoder's output.

        The derivative is diagonal in each half of the output; shape ``(task, class, 2 * dim)``.
        """
        start = glorot_scale(self.dim, codes.shape[1])
        mean, scale = split_gaussian(self.decoder(codes), start)
        by_mean = torch.ones_like(mean)
        if not self.training:
            return mean, torch.cat((by_mean, torch.zeros_like(mean)), dim=-1)
        noise = torch.randn_like(mean)
        by_raw = torch.where(scale > SMALLEST_SCALE, scale + 1 - start, 0.0)
        return mean + noise * scale, torch.cat((by_mean, noise * by_raw), dim=-1)

    def _gradient(self, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of the support's loss by the weights, ``(task, class, dim)``."""
        x, n_way = self._drop(x), weights.shape[1]
        p = torch.softmax(weights @ x.mT, dim=1)
        return (p - class_rows(y, n_way, x.dtype)) @ x * (n_way / x.shape[1])

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)

    def _correlation(self) -> Tensor:
        """Return the mean squared difference of the decoder's correlations and the identity."""
        columns = normalize(self.decoder.weight, dim=0)
        identity = torch.eye(columns.shape[1], dtype=columns.dtype, device=columns.device)
        return (columns.mT @ columns - identity).square().mean()

    def _matrices(self) -> list[Tensor]:
        layers = (self.encoder, *self.relation, self.decoder)
        return [layer.weight for layer in layers if isinstance(layer, nn.Linear)]


def _unit(z: Tensor) -> Tensor:
    return normalize(z, dim=-1)
