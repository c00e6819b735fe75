#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Twenty seconds of the soak; a seed of its own each time.
exec "$(dirname "$0")/../soak.sh" 20
