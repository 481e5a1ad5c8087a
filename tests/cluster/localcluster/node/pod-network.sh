#!/bin/sh
# The pod network of kind clusters made here, in place of kindnetd, which is to be had as an image only: writes this
# node's CNI configuration from its pod range, keeps a route to every other node's, and hides pods behind the node for
# what is neither.
api=https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT
identity=/var/run/secrets/kubernetes.io/serviceaccount
written=
while :; do
  curl -sS --max-time 5 --cacert $identity/ca.crt -H "Authorization: Bearer $(cat $identity/token)" "$api/api/v1/nodes" |
    jq -r '.items[] | "\(.metadata.name) \(.spec.podCIDR) \([.status.addresses[] | select(.type == "InternalIP") | .address][0])"' \
      > /tmp/nodes || { sleep 1; continue; }
  while read -r name range address; do
    [ "$range" = null ] && continue
    if [ "$name" != "$NODE" ]; then
      ip route replace "$range" via "$address"
    elif [ "$range" != "$written" ]; then
      cat > /cni/.pod-network << CONFLIST
{"cniVersion": "0.4.0", "name": "pod-network", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500, "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam-state",
    "ranges": [[{"subnet": "$range"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
CONFLIST
      mv /cni/.pod-network /cni/10-pod-network.conflist
      masquerade="POSTROUTING -s $range ! -d $POD_SUBNET -j MASQUERADE"
      iptables -w -t nat -C $masquerade 2> /dev/null || iptables -w -t nat -A $masquerade
      written=$range
      echo "this node's pods have $range"
    fi
  done < /tmp/nodes
  [ -n "$written" ] && sleep 5 || sleep 0.2
done
