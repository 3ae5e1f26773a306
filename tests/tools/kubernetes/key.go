package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"

	"github.com/spf13/cobra"
)

// newKeyCommand writes a key that an API server may sign service account tokens with.
func newKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:  "key FILE",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				return err
			}
			der, err := x509.MarshalECPrivateKey(key)
			if err != nil {
				return err
			}
			block := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
			return os.WriteFile(args[0], block, 0o600)
		},
	}
}
