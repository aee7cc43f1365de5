"""Which photos are worth labelling next: uncertain ones, and not ten of the same.

Photos are weighed by how little the two best classes differ. Then they are taken greedily, each
time the one with the largest product of doubt and distance from all that is known or taken already
(examples, and the photos chosen before).
"""

import torch
from torch import Tensor

_CANDIDATES = 2000


def worth_labelling(features: Tensor, probabilities: Tensor, known: Tensor, n: int) -> list[int]:
    """Numbers of ``n`` photos, the most useful first; rows of NaN are passed over.

    Parameters
    ----------
    features
        Of the photos, shape ``(photo, dim)``.
    probabilities
        Of their classes, shape ``(photo, class)``.
    known
        Features of what is labelled already, shape ``(example, dim)``.
    """
    best = probabilities.nan_to_num(0).topk(2, dim=-1).values
    doubt = 1 - (best[:, 0] - best[:, 1])
    doubt[probabilities.isnan().any(-1) | (best[:, 0] == 1)] = -1
    candidates = doubt.topk(min(_CANDIDATES, len(doubt))).indices
    candidates = candidates[doubt[candidates] > 0]
    z = torch.nn.functional.normalize(features[candidates], dim=-1)
    z_known = torch.nn.functional.normalize(known, dim=-1)
    distance = torch.cdist(z, z_known).amin(-1)
    chosen: list[int] = []
    for _ in range(min(n, len(candidates))):
        value = doubt[candidates] * distance
        pick = int(value.argmax())
        chosen.append(int(candidates[pick]))
        distance = torch.minimum(distance, torch.linalg.vector_norm(z - z[pick], dim=-1))
        distance[pick] = -1
    return chosen
