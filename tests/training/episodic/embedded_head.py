"""A head over a linear embedding, which stands for a backbone that learns with it."""

import torch

from infoshot.training.episodic.head import Episodes, Head


class EmbeddedHead(Head):
    """Multiplies the samples by a matrix, the identity at first, and calls another head."""

    def __init__(self, head: Head) -> None:
        super().__init__(head.dim, head.n_base_classes)
        self.head = head
        self.embedding = torch.nn.Linear(head.dim, head.dim, bias=False)
        torch.nn.init.eye_(self.embedding.weight)

    def log_posterior(self, z_sup, y_sup, z_qry, n_way):
        return self.head.log_posterior(self.embedding(z_sup), y_sup, self.embedding(z_qry), n_way)

    def loss(self, episodes):
        z_sup, z_qry = self.embedding(episodes.z_sup), self.embedding(episodes.z_qry)
        classes = episodes.classes
        return self.head.loss(Episodes(z_sup, episodes.y_sup, z_qry, episodes.y_qry, classes))
