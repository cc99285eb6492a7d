# SPDX-License-Identifier: Apache-2.0
"""What scripts/contract writes from common/contract/contract.yaml."""
