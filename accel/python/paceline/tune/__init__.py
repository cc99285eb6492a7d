# SPDX-License-Identifier: Apache-2.0
"""Changes that are tried in a running job, and kept only where steps get quicker.

A program cannot know beforehand whether compiling its model pays: it gained 34 % on one model and
lost 17 % on another of the same size. So the change is made at a step's end, windows of steps with
and without it alternate, and a paired test decides (`_pairs`). What is kept is looked at again
later.

- `_pairs`: what pairs of windows tell
- `_trial`: one trial, from its first step to its verdict
- `_tuner`: when trials begin, and what follows; driven by the steps of the first optimizer
- `_ranks`: how ranks begin together and decide alike
- `_together`: the same for ranks that must not differ, not even by rounding
- `_learned`, `_signature`: what a later run of the same training begins with
- `_roots`, `_compile`, `_cache`: torch.compile as a change; the other is `paceline.optim._choice`
- `_report`: what paceline.explain() says
"""
