"""PopArt for one linear head per task, in plain Python; Hessel et al. 2019, equations 6 and 9."""

import math


class PopArtLoops:
    """weights[k] is a list of F numbers, biases[k] a number."""

    def __init__(self, weights, biases, beta, sigma_min=1e-4, sigma_max=1e6):
        self.weights = [list(row) for row in weights]
        self.biases = list(biases)
        self.beta = beta
        self.bounds = (sigma_min, sigma_max)
        self.mu = [0.0] * len(biases)
        self.nu = [1.0] * len(biases)

    def sigma(self, task):
        lowest, highest = self.bounds
        variance = max(self.nu[task] - self.mu[task] ** 2, 0.0)
        return min(max(math.sqrt(variance), lowest), highest)

    def normalised(self, features, task):
        return (
            sum(w * f for w, f in zip(self.weights[task], features, strict=True))
            + self.biases[task]
        )

    def value(self, features, task):
        return self.sigma(task) * self.normalised(features, task) + self.mu[task]

    def update(self, targets_by_task):
        """One step per task, from the mean of its targets; a task without targets stays."""
        for task, targets in targets_by_task.items():
            if not targets:
                continue
            old_mu, old_sigma = self.mu[task], self.sigma(task)
            mean = sum(targets) / len(targets)
            mean_square = sum(v * v for v in targets) / len(targets)
            self.mu[task] = (1 - self.beta) * self.mu[task] + self.beta * mean
            self.nu[task] = (1 - self.beta) * self.nu[task] + self.beta * mean_square
            new_sigma = self.sigma(task)
            self.weights[task] = [w * old_sigma / new_sigma for w in self.weights[task]]
            self.biases[task] = (old_sigma * self.biases[task] + old_mu - self.mu[task]) / new_sigma
