# Issues a certificate of version 1 for the account: bash -ec <this> issue DIRECTORY PKI SECONDS. `openssl x509` knows no life
# below a day.
cd "$1"
: >index.txt
cat >ca.cnf <<'EOF'
[ca]
default_ca=x
[x]
database=index.txt
new_certs_dir=.
rand_serial=yes
default_md=sha256
policy=p
unique_subject=no
[p]
commonName=supplied
EOF
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout new.key -out new.csr \
  -subj /CN=system:serviceaccount:nodegate:no-leases
openssl ca -batch -notext -config ca.cnf -cert "$2/ca.crt" -keyfile "$2/ca.key" -in new.csr -out new.crt \
  -enddate "$(date -u -d "+$3 seconds" +%y%m%d%H%M%SZ)"
