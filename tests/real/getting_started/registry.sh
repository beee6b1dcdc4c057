# bash -euc <this> STEP NAME ADDRESS PKI DIRECTORY: makes the registry's certificate and settings (certify), or lets the
# machine on which it runs trust it (trust).
name=$1 address=$2 pki=$3 at=$4
case $0 in
  certify)
    cd "$at"
    openssl ecparam -name prime256v1 -genkey -noout -out key
    openssl req -new -key key -subj "/CN=$name" -out csr
    echo "subjectAltName=DNS:$name" >names
    openssl x509 -req -in csr -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 30 -extfile names -out crt
    cat >registry.yml <<EOF
version: 0.1
log: {level: info}
storage: {filesystem: {rootdirectory: $at/images}}
http: {addr: '$address:443', tls: {certificate: $at/crt, key: $at/key}}
EOF
    ;;
  trust) # /etc is the nodes' own there
    echo "$address $name" >>/etc/hosts
    mkdir -p "/etc/containers/certs.d/$name" "/etc/containerd/certs.d/$name"
    cp "$pki/ca.crt" "/etc/containers/certs.d/$name/"
    printf '[host."https://%s"]\nca = "%s/ca.crt"\n' "$name" "$pki" >"/etc/containerd/certs.d/$name/hosts.toml"
    ;;
esac
