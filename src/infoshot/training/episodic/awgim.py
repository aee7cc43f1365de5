r"""AWGIM, attentive weights generation: each query gets its own class weights.

It works on fixed features. Two paths read the support; a decoder combines them to weights of a
linear classifier, which depend on the query that they classify.

Att is multi-head attention followed by a small network, each with a residual connection and layer
normalisation; mean over k is the mean over the support samples of class k.

.. math::
    \text{context: } \; & c_k = \mathrm{mean}_k \, \mathrm{Att}_1(A x_S, A x_S, A x_S) \\
    \text{attentive: } \; & v_k = \mathrm{mean}_k \, \mathrm{Att}_2(B x_S, B x_S, B x_S), \quad
    a_i = \mathrm{Att}_3(B x_i, B x_S, v_{y_S}) \\
    \text{weights of class k for query i: } \; & (\mu_{ik}, u_{ik}) = \mathrm{decoder}(c_k, a_i),
    \quad w_{ik} \sim N(\mu_{ik}, \sigma_{ik}^2), \quad p_{ik} \propto \exp(w_{ik}^\top x_i)

Scales are those of ``gaussian_weights.py``.

Training maximises lower bounds of the mutual information of the weights with the query and with the
support. Both are read back from the weights by two small networks r and s:

.. math:: -\log p_i(y_i) - \lambda_1 \, \mathrm{mean}_{j \in S} \log p(y_j | x_j, w_i)
          + \lambda_2 \|s(w_{ik}) - c_k\|^2 + \lambda_3 \|r(w_{ik}) - a_i\|^2

averaged over queries and classes; :math:`c_k` and :math:`a_i` are constants in the last two terms.

What is learnt: the matrices A and B, three attention blocks, the decoder, r and s; not the
backbone. Weights are drawn, and inputs dropped out, in training only. At test time weights are
their means.

Cost: the decoder runs for every pair of a query and a class. Large batches are classified in chunks
of queries.

Inductive: every query attends to the support only, never to other queries. TIM's Table 1 lists
AWGIM as transductive. In the authors' code the layer normalisation runs over all samples of a task
together, so that queries share one mean and one variance; here it runs over each sample.

Reference: Y. Guo, N.-M. Cheung. Attentive Weights Generation for Few Shot Learning via Information
Maximization. CVPR 2020; details from the authors' code.

What differs from the original: the layer normalisation, see above. The authors draw weights for
each support sample and average them over the class; here each class has one draw. Any number of
ways and unequal shots work.
"""

from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.solvers.objective import class_means
from infoshot.training.episodic.gaussian_weights import glorot_scale, split_gaussian
from infoshot.training.episodic.head import Episodes, Head, query_cross_entropy
from infoshot.training.episodic.query_chunks import map_queries


class _Support(NamedTuple):
    """What queries need of the support: a code per class, a key and a value per sample."""

    context: Tensor
    keys: Tensor
    values: Tensor


@final
class Awgim(Head):
    """Attentive weights generation, with the published settings of mini-ImageNet, 1 shot.

    Parameters
    ----------
    dim, n_base_classes
        As in :class:`Head`; base classes are not used.
    n_latents
        Width of the two paths.
    n_heads
        Number of heads of an attention.
    dropout
        Share of the inputs of each small network, and of the features, that training drops.
    support_weight, context_weight, query_weight
        Weights of the support's cross-entropy (lambda_1), of reading back the context (lambda_2)
        and of reading back the query (lambda_3).
    """

    def __init__(
        self,
        dim: int,
        n_base_classes: int,
        *,
        n_latents: int = 128,
        n_heads: int = 4,
        dropout: float = 0.3,
        support_weight: float = 1.0,
        context_weight: float = 1e-3,
        query_weight: float = 1e-3,
    ) -> None:
        super().__init__(dim, n_base_classes)
        self.dropout, self.support_weight = dropout, support_weight
        self.context_weight, self.query_weight = context_weight, query_weight
        checks.at_least("n_heads", n_heads, 1)
        checks.at_least("n_latents", n_latents, n_heads)
        if n_latents % n_heads:
            raise InvalidArgumentError(
                f"n_latents must be a multiple of n_heads={n_heads}; got {n_latents}."
            )
        checks.share_below_one("dropout", dropout)
        for name in ("support", "context", "query"):
            checks.not_negative(f"{name}_weight", getattr(self, f"{name}_weight"))
        self.context_encoder = nn.Linear(dim, n_latents, bias=False)
        self.attentive_encoder = nn.Linear(dim, n_latents, bias=False)
        for encoder in (self.context_encoder, self.attentive_encoder):
            nn.init.xavier_uniform_(encoder.weight)
        self.context = _Attention(n_latents, n_heads, dropout)
        self.attentive_context = _Attention(n_latents, n_heads, dropout)
        self.cross = _Attention(n_latents, n_heads, dropout)
        self.decoder = _mlp(2 * n_latents, 2 * n_latents, 2 * dim, dropout)
        self.read_context = _mlp(dim, 2 * n_latents, n_latents, dropout)
        self.read_query = _mlp(dim, 2 * n_latents, n_latents, dropout)

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Classify every query by its own class weights."""
        support = self._read_support(z_sup, y_sup, n_way)
        return map_queries(
            lambda some: self._classify(some, self._generate(support, some)[0]),
            z_qry,
            n_values=n_way * 2 * self.dim,
        )

    def loss(self, episodes: Episodes) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy of queries and support and the errors of reading back."""
        z_sup, y_sup, z_qry = episodes.z_sup, episodes.y_sup, episodes.z_qry
        support = self._read_support(z_sup, y_sup, episodes.n_way)
        weights, query = self._generate(support, z_qry)
        log_p = self._classify(z_qry, weights)
        scores = torch.einsum("tsd,tqkd->tqsk", self._drop(z_sup), weights)
        support_loss = query_cross_entropy(
            torch.log_softmax(scores, dim=-1).flatten(0, 1),
            y_sup.repeat_interleave(z_qry.shape[1], dim=0),
        )
        context_error = self.read_context(weights) - support.context.detach().unsqueeze(1)
        query_error = self.read_query(weights) - query.detach().unsqueeze(2)
        loss = query_cross_entropy(log_p, episodes.y_qry) + self.support_weight * support_loss
        loss = loss + self.context_weight * context_error.square().sum(-1).mean()
        return loss + self.query_weight * query_error.square().sum(-1).mean(), log_p

    def _read_support(self, z_sup: Tensor, y_sup: Tensor, n_way: int) -> _Support:
        encoded = self.context_encoder(self._drop(z_sup))
        context = class_means(self.context(encoded, encoded, encoded), y_sup, n_way)
        keys = self.attentive_encoder(self._drop(z_sup))
        means = class_means(self.attentive_context(keys, keys, keys), y_sup, n_way)
        values = means.gather(1, y_sup.unsqueeze(-1).expand(-1, -1, means.shape[-1]))
        return _Support(context, keys, values)

    def _generate(self, support: _Support, z_qry: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights ``(task, query, class, dim)`` and codes of queries."""
        query = self.attentive_encoder(self._drop(z_qry))
        query = self.cross(query, support.keys, support.values)
        n_way = support.context.shape[1]
        shape = (-1, query.shape[1], n_way, -1)
        codes = (support.context.unsqueeze(1).expand(shape), query.unsqueeze(2).expand(shape))
        decoded = self.decoder(torch.cat(codes, dim=-1))
        mean, scale = split_gaussian(decoded, glorot_scale(self.dim, n_way))
        weights = mean + scale * torch.randn_like(mean) if self.training else mean
        return weights, query

    def _classify(self, z_qry: Tensor, weights: Tensor) -> Tensor:
        scores = torch.einsum("tqd,tqkd->tqk", self._drop(z_qry), weights)
        return torch.log_softmax(scores, dim=-1)

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)


class _Attention(nn.Module):
    """Multi-head attention and a small network, each with residual and layer normalisation."""

    def __init__(self, width: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, n_heads, bias=False, batch_first=True)
        for matrix in (self.attention.in_proj_weight, self.attention.out_proj.weight):
            nn.init.normal_(matrix, std=width**-0.5)
        self.normalise_1, self.normalise_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.network = _mlp(width, 2 * width, width, dropout)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        attended, _ = self.attention(queries, keys, values, need_weights=False)
        hidden = self.normalise_1(queries + attended)
        return self.normalise_2(hidden + self.network(hidden))  # type: ignore[no-any-return]


def _mlp(n_in: int, n_hidden: int, n_out: int, dropout: float) -> nn.Sequential:
    first, last = nn.Linear(n_in, n_hidden, bias=False), nn.Linear(n_hidden, n_out, bias=False)
    for layer in (first, last):
        nn.init.xavier_uniform_(layer.weight)
    return nn.Sequential(nn.Dropout(dropout), first, nn.ReLU(), last)
