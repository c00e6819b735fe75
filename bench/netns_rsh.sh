#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What mpirun takes for ssh: 10.77.0.10 is the namespace $NETNS_RUN-gpu0, and so on.
#	netns_rsh.sh ADDRESS COMMAND...
address=$1
shift
gpu=gpu$(( ${address##*.} - 10 ))
# A host name of its own: mpirun counts hosts by their names.
exec ip netns exec "$NETNS_RUN-$gpu" unshare --uts sh -c "hostname $gpu; $*"
