# SPDX-License-Identifier: Apache-2.0
"""Workers for loaders that have none, or too few (class Reordered: a sample that draws at random
draws from another stream). Samples and their order stay.
"""
