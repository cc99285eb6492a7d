# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes on one machine, without Docker: every node is a network and a mount namespace."""
