package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

// newCredentialsCommand writes what a cluster starts from: sa.key, with which an API server signs service account
// tokens; ca.crt, of an authority for client certificates; NODE.crt and NODE.key for the kubelet of each node; and
// kubelet-client.crt and kubelet-client.key, with which the API server calls kubelets.
func newCredentialsCommand() *cobra.Command {
	return &cobra.Command{
		Use:  "credentials FOLDER NODE...",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return writeCredentials(args[0], args[1:]) },
	}
}

func writeCredentials(folder string, nodes []string) error {
	if _, err := newKey(filepath.Join(folder, "sa.key")); err != nil {
		return err
	}
	authorityKey, err := newKey("")
	if err != nil {
		return err
	}
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "clients"},
		NotBefore:    now.Add(-time.Hour),
		// A cluster that a person started may live long.
		NotAfter:              now.AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if err := sign(filepath.Join(folder, "ca.crt"), authority, authority, authorityKey.Public(), authorityKey); err != nil {
		return err
	}
	// Who the API server is to kubelets: one who may do everything.
	clients := map[string]pkix.Name{
		"kubelet-client": {CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
	}
	for _, node := range nodes {
		// Who a kubelet is (source: Kubernetes, using node authorization).
		clients[node] = pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
	}
	serial := int64(1)
	for file, subject := range clients {
		key, err := newKey(filepath.Join(folder, file+".key"))
		if err != nil {
			return err
		}
		serial++
		certificate := &x509.Certificate{
			SerialNumber: big.NewInt(serial),
			Subject:      subject,
			NotBefore:    authority.NotBefore,
			NotAfter:     authority.NotAfter,
			KeyUsage:     x509.KeyUsageDigitalSignature,
			ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		if err := sign(filepath.Join(folder, file+".crt"), certificate, authority, key.Public(), authorityKey); err != nil {
			return err
		}
	}
	return nil
}

// newKey makes a key and keeps it in a file, if that has a name.
func newKey(file string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil || file == "" {
		return key, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func sign(file string, certificate, authority *x509.Certificate, key crypto.PublicKey, signer crypto.Signer) error {
	der, err := x509.CreateCertificate(rand.Reader, certificate, authority, key, signer)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}
