#!/bin/sh
# Makes the certificates of the tests of TLS again: two authorities, each with a certificate for
# `localhost` that it signed. The keys protect nothing. They are valid for 100 years.
set -eu
cd "$(dirname "$0")"
for set in first second; do
    mkdir -p "$set"
    openssl ecparam -name prime256v1 -genkey -noout -out "$set/ca-key.pem"
    openssl req -x509 -new -key "$set/ca-key.pem" -days 36500 -subj "/CN=Authority $set of tests" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign -out "$set/ca.pem"
    openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$set/key.pem"
    openssl req -new -key "$set/key.pem" -subj "/CN=localhost" -out "$set/request.pem"
    printf 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n' >"$set/extensions"
    openssl x509 -req -in "$set/request.pem" -CA "$set/ca.pem" -CAkey "$set/ca-key.pem" -CAcreateserial \
        -days 36500 -extfile "$set/extensions" -out "$set/cert.pem"
    rm -f "$set/request.pem" "$set/extensions" "$set/ca-key.pem" "$set"/ca.srl
done
