# SPDX-License-Identifier: Apache-2.0
"""Workers for loaders that have none (class Reordered: a sample that draws at random draws from a
worker's stream). Samples and their order stay.
"""
