"""The other methods in plain NumPy, float64, one task at a time, to be read against the equations.

Nothing here is shared with the package. z is [n, d], labels y_s [S], w [K, d]; y, q, p and the
logits l are [n, K]. Every method answers {"p": [N, K], "w": [K, d]} and, where it has one,
"outlier" [N]. Gradients are the chain rule, one Jacobian at a time: loss to p, p to l by
dp_j/dl_k = p_j ([j = k] - p_k), l to w.
"""

import numpy as np

from tests.reference.tim_numpy import one_hot, prototypes


def finite_difference(f, x, h=1e-6):
    """Central differences: df/dx_n = (f(x + h e_n) - f(x - h e_n)) / 2h."""
    x = np.asarray(x, dtype=np.float64)
    gradient = np.zeros_like(x)
    for n in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[n] = h
        gradient[n] = (f(x + step) - f(x - step)) / (2 * h)
    return gradient


def adam(x, learning_rate, n_steps, gradient, *task, **options):
    """Kingma and Ba, Algorithm 1, with 0.9, 0.999, 1e-8; gradient(x, *task, **options)."""
    m, v = np.zeros_like(x), np.zeros_like(x)
    for t in range(1, n_steps + 1):
        g = gradient(x, *task, **options)
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.999**t)
        x = x - learning_rate * m_hat / (np.sqrt(v_hat) + 1e-8)
    return x


def log_softmax(logits):
    """log p_ik = l_ik - log sum_j exp(l_ij), row by row; l_ik = -inf gives p_ik = 0."""
    shifted = logits - logits.max(axis=1)[:, None]
    return shifted - np.log(np.exp(shifted).sum(axis=1))[:, None]


def softmax(logits):
    """p_ik = exp(l_ik) / sum_j exp(l_ij)."""
    return np.exp(log_softmax(logits))


def unit(z):
    """z / |z|, row by row; a zero row stays zero."""
    length = np.sqrt((z**2).sum(axis=1))[:, None]
    return z / np.where(length > 0, length, 1.0)


def products(z, w):
    """z_i.w_k."""
    return np.array([[(a * b).sum() for b in w] for a in z])


def cosines(z, w):
    """c_ik = z_i.w_k / (|z_i| |w_k|), 0 where either is zero."""
    return products(unit(z), unit(w))


def squared_distances(z, w):
    """|z_i - w_k|^2."""
    return np.array([[((a - b) ** 2).sum() for b in w] for a in z])


def mixed_means(z_s, y, z_q, q):
    """w_k = (sum_S y_ik z_i + sum_Q q_ik z_i) / (sum_S y_ik + sum_Q q_ik)."""
    return prototypes(np.concatenate([z_s, z_q]), np.concatenate([y, q]))


def cross_entropy(logits, y):
    """-1/n sum_ik y_ik log p_ik."""
    return -(y * log_softmax(logits)).sum() / len(y)


def through_softmax(p, g):
    """dL/dl_ik = sum_j g_ij ([j = k] - p_ik), g_ij = dL/dlog p_ij = p_ij dL/dp_ij."""
    dl = np.zeros_like(p)
    for k in range(p.shape[1]):
        for j in range(p.shape[1]):
            dl[:, k] += g[:, j] * ((1.0 if j == k else 0.0) - p[:, k])
    return dl


def cross_entropy_by_logits(logits, y):
    """Through the softmax from dL/dlog p_ij = -y_ij / n."""
    return through_softmax(softmax(logits), -y / len(y))


def log_or_zero(x):
    """log x, and 0 where x = 0, so that 0 log 0 = 0."""
    return np.log(np.where(x > 0, x, 1.0))


def entropy(r, a):
    """Tsallis: H_a(r) = (1 - sum_k r_k^a) / (a - 1); a = 1 is Shannon: -sum_k r_k log r_k."""
    return -(r * log_or_zero(r)).sum() if a == 1 else (1 - (r**a).sum()) / (a - 1)


def entropy_by_r(r, a):
    """dH_a/dr_k = -a r_k^(a - 1) / (a - 1); a = 1: -log r_k - 1."""
    return -log_or_zero(r) - 1 if a == 1 else -a * r ** (a - 1) / (a - 1)


def information(l_s, y, l_q, a, lam, beta, alpha):
    """L = lam CE(S) - beta H_a(mean_i p_i) + alpha mean_i H_a(p_i)."""
    p = softmax(l_q)
    conditional = sum(entropy(p_i, a) for p_i in p) / len(p)
    return lam * cross_entropy(l_s, y) - beta * entropy(p.mean(axis=0), a) + alpha * conditional


def information_by_logits(l_s, y, l_q, a, lam, beta, alpha):
    """dL/dl_ik of the support and of the queries, through dp_j/dl_k = p_j ([j = k] - p_k)."""
    p = softmax(l_q)
    dp = np.zeros_like(p)
    for i in range(len(p)):
        dp[i] -= beta / len(p) * entropy_by_r(p.mean(axis=0), a)
        dp[i] += alpha / len(p) * entropy_by_r(p[i], a)
    return lam * cross_entropy_by_logits(l_s, y), through_softmax(p, p * dp)


def by_weights(dl, jacobian):
    """dL/dw_k = sum_i dL/dl_ik dl_ik/dw_k, the last being jacobian(i, k)."""
    n, K = dl.shape
    return np.array([sum(dl[i, k] * jacobian(i, k) for i in range(n)) for k in range(K)])


def through_cosines(z, w, dc):
    """dcos(z, w)/dw = (z/|z| - cos(z, w) w/|w|) / |w|, 0 where w = 0."""
    c, z_unit, w_unit = cosines(z, w), unit(z), unit(w)
    length = np.sqrt((w**2).sum(axis=1))
    inverse = np.divide(1.0, length, out=np.zeros(len(w)), where=length > 0)
    return by_weights(dc, lambda i, k: (z_unit[i] - c[i, k] * w_unit[k]) * inverse[k])


def matching(z_s, y_s, z_q, K, *, temperature=1.0):
    """p_ik proportional to sum_{j in S} y_jk exp(tau cos(z_i, z_j))."""
    attention = softmax(temperature * cosines(z_q, z_s))
    p = np.zeros((len(z_q), K))
    for j in range(len(z_s)):
        p[:, y_s[j]] += attention[:, j]
    return {"p": p, "w": prototypes(z_s, one_hot(y_s, K))}


def baseline_loss(w, z_s, y_s, K, *, temperature=1.0):
    """Mean cross-entropy of the support, l_ik = tau w_k.z_i."""
    return cross_entropy(temperature * products(z_s, w), one_hot(y_s, K))


def baseline_gradient(w, z_s, y_s, K, *, temperature=1.0):
    """d(tau w.z)/dw = tau z."""
    dl = cross_entropy_by_logits(temperature * products(z_s, w), one_hot(y_s, K))
    return by_weights(dl, lambda i, k: temperature * z_s[i])


def baseline(z_s, y_s, z_q, K, *, temperature=1.0, learning_rate=1e-2, n_steps=100):
    """Adam on baseline_loss from w = 0; p = softmax_k(tau w_k.z)."""
    start, task = np.zeros((K, z_s.shape[1])), (z_s, y_s, K)
    w = adam(start, learning_rate, n_steps, baseline_gradient, *task, temperature=temperature)
    return {"p": softmax(temperature * products(z_q, w)), "w": w}


def baseline_plus_plus_loss(theta, z_s, y_s, K):
    """Mean support cross-entropy, l_ik = s cos(v_k, z_i); theta is v_1, ..., v_K, s in one row."""
    v, s = theta[:-1].reshape(K, -1), theta[-1]
    return cross_entropy(s * cosines(z_s, v), one_hot(y_s, K))


def baseline_plus_plus_gradient(theta, z_s, y_s, K):
    """dL/ds = sum_ik dL/dl_ik cos_ik; dL/dv_k through dL/dcos_ik = s dL/dl_ik."""
    v, s = theta[:-1].reshape(K, -1), theta[-1]
    c = cosines(z_s, v)
    dl = cross_entropy_by_logits(s * c, one_hot(y_s, K))
    return np.append(through_cosines(z_s, v, s * dl).ravel(), (dl * c).sum())


def baseline_plus_plus(z_s, y_s, z_q, K, *, temperature=10.0, learning_rate=1e-2, n_steps=100):
    """Adam on v (from unit support means) and s (from tau); w_k = s v_k/|v_k|, l = w_k.z/|z|."""
    start = np.append(unit(prototypes(z_s, one_hot(y_s, K))).ravel(), temperature)
    theta = adam(start, learning_rate, n_steps, baseline_plus_plus_gradient, z_s, y_s, K)
    w = theta[-1] * unit(theta[:-1].reshape(K, -1))
    return {"p": softmax(products(unit(z_q), w)), "w": w}


def nearest(distances, own, n):
    """Indices of the n smallest distances, own left out, the earlier index first among equals."""
    others = [j for j in range(len(distances)) if j != own]
    return sorted(others, key=lambda j: distances[j])[:n]


def neumann(B):
    """(I - B)^-1 = sum_n B^n = ...(I + B^4)(I + B^2)(I + B); B >= 0: without a path exactly 0."""
    total, power = np.eye(len(B)), B
    while (power > 0).any():
        total = total + power @ total
        power = power @ power
    return total


def label_propagation(z_s, y_s, z_q, K, *, temperature=20.0, n_neighbours=20, propagation=0.99):
    """F = (I - a D^-1/2 A D^-1/2)^-1 Y, A_ij = exp(-tau/2 |z_i - z_j|^2).

    A_ii = 0, each row keeps its largest, A <- max(A, A^T).
    p_ik = F_ik / sum_k F_ik, outlier 1 - max_k p_ik; where sum_k F_ik = 0, p = 1/K and outlier 1.
    """
    y, S, z = one_hot(y_s, K), len(z_s), np.concatenate([z_s, z_q])
    distances = squared_distances(z, z)
    A, B = np.zeros_like(distances), np.zeros_like(distances)
    for i in range(len(z)):
        for j in nearest(distances[i], i, n_neighbours):
            A[i, j] = np.exp(-temperature / 2 * distances[i, j])
    A = np.maximum(A, A.T)
    for i, j in np.argwhere(A > 0):
        B[i, j] = A[i, j] / np.sqrt(A[i].sum()) / np.sqrt(A[j].sum())
    F = (neumann(propagation * B) @ np.concatenate([y, np.zeros((len(z_q), K))]))[S:]
    p, outlier = np.full((len(z_q), K), 1 / K), np.ones(len(z_q))
    for i in range(len(z_q)):
        if F[i].sum() > 0:
            p[i] = F[i] / F[i].sum()
            outlier[i] = 1 - p[i].max()
    return {"p": p, "w": prototypes(z_s, y), "outlier": outlier}


def laplacianshot(z_s, y_s, z_q, K, *, temperature=2.0, affinity_weight=None, n_neighbours=2,
                  n_steps=20, rectify=True):  # fmt: skip
    """p <- softmax_k(-a + lam G p), G: neighbours; a = tau/2 |z_i - w_k|^2, those of BD-CSPN."""
    few = len(z_s) / K < 5
    lam = (0.7 if few else 0.2) if affinity_weight is None else affinity_weight
    w, G = prototypes(z_s, one_hot(y_s, K)), np.zeros((len(z_q), len(z_q)))
    if rectify:
        w = bd_cspn(z_s, y_s, z_q, K)["w"]
        z_q = z_q + (z_s.mean(axis=0) - z_q.mean(axis=0))
    a, between = temperature / 2 * squared_distances(z_q, w), squared_distances(z_q, z_q)
    for i in range(len(z_q)):
        G[i, nearest(between[i], i, n_neighbours)] = 1
    p = softmax(-a)
    for _ in range(n_steps):
        p = softmax(-a + lam * G @ p)
    return {"p": p, "w": w}


def bd_cspn(z_s, y_s, z_q, K, *, temperature=10.0):
    """w'_k = sum_{labelled k} r_ik x_i / sum r_ik, r = softmax_k(tau cos(x_i, w_k)).

    x: the support, and the queries plus mean_S z - mean_Q z, these labelled argmax_k cos.
    p = softmax_k(tau cos(x_i, w'_k)).
    """
    x_q = z_q + (z_s.mean(axis=0) - z_q.mean(axis=0))
    w, x = prototypes(z_s, one_hot(y_s, K)), np.concatenate([z_s, x_q])
    r = softmax(temperature * cosines(x, w))
    label = [*y_s, *cosines(x_q, w).argmax(axis=1)]
    new = prototypes(x, r * one_hot(label, K))
    return {"p": softmax(temperature * cosines(x_q, new)), "w": new}


def sinkhorn(P, columns, tolerance, most_rounds):
    """Scale columns to `columns`, then rows to 1, in turn until the columns hold after the rows."""
    for _ in range(100_000 if most_rounds is None else most_rounds):
        if (np.abs(P.sum(axis=0) - columns) <= tolerance * columns).all():
            return P
        P = P * (columns / np.where(columns > 0, P.sum(axis=0), 1.0))
        P = P / P.sum(axis=1)[:, None]
    if most_rounds is None:
        raise RuntimeError("Sinkhorn's columns are not right: too slow without a limit of rounds")
    return P


def pt_map(z_s, y_s, z_q, K, *, temperature=20.0, class_prior=None, prototype_step_size=0.2,
           n_steps=20, tolerance=1e-9, most_rounds=None):  # fmt: skip
    """P = Sinkhorn(exp(-tau/2 |x_i - w_k|^2)), rows 1, columns N pi_k; w += step (mu - w).

    x: support and queries each minus their own mean, rows to length one; w lives there too.
    mu = mixed_means(P). The softmax is the first scaling of the rows.
    """
    y, prior = one_hot(y_s, K), np.full(K, 1 / K) if class_prior is None else class_prior
    x_s, x_q = unit(z_s - z_s.mean(axis=0)), unit(z_q - z_q.mean(axis=0))

    def transport(w):
        rows_right = softmax(-temperature / 2 * squared_distances(x_q, w))
        return sinkhorn(rows_right, len(z_q) * np.asarray(prior), tolerance, most_rounds)

    w = prototypes(x_s, y)
    for _ in range(n_steps):
        w = w + prototype_step_size * (mixed_means(x_s, y, x_q, transport(w)) - w)
    return {"p": transport(w), "w": w}


def soft_kmeans(z_s, y_s, z_q, K, *, temperature=15.0, n_steps=10):
    """q = softmax_k(-tau/2 |z_i - w_k|^2), then w = mixed_means; p from the last w."""
    y = one_hot(y_s, K)
    w = prototypes(z_s, y)
    for _ in range(n_steps):
        w = mixed_means(z_s, y, z_q, softmax(-temperature / 2 * squared_distances(z_q, w)))
    return {"p": softmax(-temperature / 2 * squared_distances(z_q, w)), "w": w}


def paddle(z_s, y_s, z_q, K, *, temperature=15.0, marginal_weight=None, n_steps=20):
    """q_ik ~ exp(-tau/2 |z_i - w_k|^2) pi_k^(lam/N), then pi_k = mean_i q_ik, w = mixed_means."""
    y, N = one_hot(y_s, K), len(z_q)
    power = (N if marginal_weight is None else marginal_weight) / N

    def posterior(w, pi):
        logits = -temperature / 2 * squared_distances(z_q, w)
        for k in range(K if power != 0 else 0):
            logits[:, k] += power * np.log(pi[k]) if pi[k] > 0 else -np.inf
        return softmax(logits)

    w, pi = prototypes(z_s, y), np.full(K, 1 / K)
    for _ in range(n_steps):
        q = posterior(w, pi)
        pi, w = q.mean(axis=0), mixed_means(z_s, y, z_q, q)
    return {"p": posterior(w, pi), "w": w}


def oslo(z_s, y_s, z_q, K, *, temperature=10.0, inlier_temperature=20.0, n_steps=2):
    """xi_i = sigmoid(g sum_k q_ik c_ik), q_i = softmax_k(xi_i tau c_i), w = means by xi q."""

    def step(q, c):
        xi = 1 / (1 + np.exp(-inlier_temperature * (q * c).sum(axis=1)))
        return xi, softmax(xi[:, None] * temperature * c)

    y = one_hot(y_s, K)
    w = prototypes(z_s, y)
    c = cosines(z_q, w)
    q = softmax(temperature * c)
    for _ in range(n_steps):
        xi, q = step(q, c)
        w = mixed_means(z_s, y, z_q, xi[:, None] * q)
        c = cosines(z_q, w)
    xi, p = step(q, c)
    return {"p": p, "w": w, "outlier": 1 - xi}


def alpha_tim_terms(w, z_s, y_s, z_q, K, *, temperature=15.0, tsallis_alpha=None,
                    cross_entropy_weight=1.0, marginal_entropy_weight=1.0,
                    conditional_entropy_weight=1.0):  # fmt: skip
    """What `information` takes: l_ik = -tau/2 |z_i - w_k|^2; a is 2 below 5 shots, then 7."""
    few = len(z_s) / K < 5
    a = (2.0 if few else 7.0) if tsallis_alpha is None else tsallis_alpha
    l_s, l_q = (-temperature / 2 * squared_distances(z, w) for z in (z_s, z_q))
    weights = cross_entropy_weight, marginal_entropy_weight, conditional_entropy_weight
    return l_s, one_hot(y_s, K), l_q, a, *weights


def alpha_tim_loss(w, z_s, y_s, z_q, K, **options):
    """CE - H_a(mean_i p_i) + mean_i H_a(p_i), with Tsallis entropies and weights."""
    return information(*alpha_tim_terms(w, z_s, y_s, z_q, K, **options))


def alpha_tim_gradient(w, z_s, y_s, z_q, K, *, temperature=15.0, **options):
    """Information to l; then d(-tau/2 |z - w|^2)/dw = tau (z - w)."""
    terms = alpha_tim_terms(w, z_s, y_s, z_q, K, temperature=temperature, **options)
    z, dl = np.concatenate([z_s, z_q]), np.concatenate(information_by_logits(*terms))
    return by_weights(dl, lambda i, k: temperature * (z[i] - w[k]))


def alpha_tim(z_s, y_s, z_q, K, *, temperature=15.0, learning_rate=1e-4, n_steps=1000, **options):
    """Adam on alpha_tim_loss from the support means; options and defaults: alpha_tim_terms."""
    start, task = prototypes(z_s, one_hot(y_s, K)), (z_s, y_s, z_q, K)
    options = {"temperature": temperature, **options}
    w = adam(start, learning_rate, n_steps, alpha_tim_gradient, *task, **options)
    return {"p": softmax(-temperature / 2 * squared_distances(z_q, w)), "w": w}


def open_logits(z, w, tau):
    """l_ik = tau cos(z_i, w_k) and one more column, l_i,K+1 = -1/K sum_k l_ik."""
    logits = tau * cosines(z, w)
    return np.concatenate([logits, -logits.mean(axis=1)[:, None]], axis=1)


def ostim_terms(w, z_s, y_s, z_q, K, *, temperature=15.0, cross_entropy_weight=0.1,
                marginal_entropy_weight=1.0, conditional_entropy_weight=0.1):  # fmt: skip
    """What `information` takes: K + 1 columns, the last of them no support's, Shannon's a = 1."""
    l_s, l_q = open_logits(z_s, w, temperature), open_logits(z_q, w, temperature)
    weights = cross_entropy_weight, marginal_entropy_weight, conditional_entropy_weight
    return l_s, one_hot(y_s, K + 1), l_q, 1, *weights


def ostim_loss(w, z_s, y_s, z_q, K, **options):
    """0.1 CE - H(mean_i p_i) + 0.1 mean_i H(p_i) over K + 1 columns."""
    return information(*ostim_terms(w, z_s, y_s, z_q, K, **options))


def ostim_gradient(w, z_s, y_s, z_q, K, *, temperature=15.0, **options):
    """Information to l; dl_i,K+1/dl_ik = -1/K, so dL/dcos_ik = tau (dL/dl_ik - 1/K dL/dl_i,K+1)."""
    terms = ostim_terms(w, z_s, y_s, z_q, K, temperature=temperature, **options)
    z, dl = np.concatenate([z_s, z_q]), np.concatenate(information_by_logits(*terms))
    return through_cosines(z, w, temperature * (dl[:, :K] - dl[:, K:] / K))


def ostim(z_s, y_s, z_q, K, *, temperature=15.0, learning_rate=1e-4, n_steps=1000, **options):
    """Adam on ostim_loss from the support means; p over K columns, outlier: the extra column."""
    start, task = prototypes(z_s, one_hot(y_s, K)), (z_s, y_s, z_q, K)
    options = {"temperature": temperature, **options}
    w = adam(start, learning_rate, n_steps, ostim_gradient, *task, **options)
    outlier = softmax(open_logits(z_q, w, temperature))[:, K]
    return {"p": softmax(temperature * cosines(z_q, w)), "w": w, "outlier": outlier}
