package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"path"
	"slices"
	"strconv"
	"testing"
	"time"
)

// OwnRedisTLS starts a Redis server for this test alone that takes encrypted connections only, with a certificate for
// 127.0.0.1 that nobody vouches for. Its URL says so: rediss://…?skip_verify=true.
func OwnRedisTLS(t testing.TB) *Server {
	t.Helper()
	cert, key, err := selfSigned()
	if err != nil {
		t.Fatalf("testenv: make a certificate: %v", err)
	}
	plain := plainRedis(redisKeeps...)
	return own(t, "redis", redisServer{
		files: map[string]string{"cert.pem": cert, "key.pem": key},
		args: func(dir string, port int) []string {
			return slices.Concat(plain.args(dir, 0), []string{"--tls-port", strconv.Itoa(port), "--tls-auth-clients", "no",
				"--tls-cert-file", path.Join(dir, "cert.pem"), "--tls-key-file", path.Join(dir, "key.pem"), "--tls-ca-cert-file", path.Join(dir, "cert.pem")})
		},
		url: func(host string, port int) string {
			return fmt.Sprintf("rediss://%s:%d/0?skip_verify=true", host, port)
		},
	}.ways())
}

// selfSigned makes a certificate for 127.0.0.1 and its key, both in PEM.
func selfSigned() (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return "", "", err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})), nil
}
