package kubelet_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	numbers "math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"

	"tranche.dev/tests/kubelet/node"
)

// apiServer answers as Kubernetes' does when an event is created: it knows the token, decodes strictly, and validates
// with Kubernetes' own code. Nothing else is to be had from it.
type apiServer struct {
	*httptest.Server
	mutex  sync.Mutex
	answer int
	events []corev1.Event
	wrong  []string
	asked  int
}

const token = "a-token"

// serveEvents starts one, and gives a machine's plugin the service account of its pod.
func serveEvents(t *testing.T, n *node.Node) *apiServer {
	t.Helper()
	a := &apiServer{answer: http.StatusCreated}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(a.create))
	authority, certificate := cluster(t)
	a.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	a.StartTLS()
	t.Cleanup(a.Close)
	account := filepath.Join(n.Dir, "account")
	if err := os.MkdirAll(account, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"token": token + "\n", "ca.crt": string(authority)} {
		if err := os.WriteFile(filepath.Join(account, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(at.Host)
	if err != nil {
		t.Fatal(err)
	}
	n.PluginEnvironment = []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port, "NODE_NAME=n1"}
	return a
}

// cluster is the authority of a cluster, as pods get it, and what it certified for the API server.
func cluster(t *testing.T) ([]byte, tls.Certificate) {
	t.Helper()
	certified := func(template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	var keys [2]*ecdsa.PrivateKey
	for at := range keys {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys[at] = key
	}
	authority := &x509.Certificate{
		SerialNumber: numbers.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: numbers.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	root := certified(authority, authority, keys[0], keys[0])
	leaf := certified(server, authority, keys[1], keys[0])
	block := &pem.Block{Type: "CERTIFICATE", Bytes: root}
	return pem.EncodeToMemory(block), tls.Certificate{Certificate: [][]byte{leaf}, PrivateKey: keys[1]}
}

func (a *apiServer) create(w http.ResponseWriter, r *http.Request) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.asked++
	if a.answer != http.StatusCreated {
		w.WriteHeader(a.answer)
		_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "message": "told to refuse"}`)
		return
	}
	event, err := read(r)
	if err != nil {
		a.wrong = append(a.wrong, err.Error())
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	a.events = append(a.events, *event)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "{}")
}

func read(r *http.Request) (*corev1.Event, error) {
	if is := r.Method + " " + r.URL.Path; is != "POST /api/v1/namespaces/default/events" {
		return nil, fmt.Errorf("nobody is to ask for %s", is)
	}
	if is := r.Header.Get("Authorization"); is != "Bearer "+token {
		return nil, fmt.Errorf("the token is %q", is)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	strict := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	object, _, err := strict.Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	internal, err := legacyscheme.Scheme.ConvertToVersion(object, runtime.InternalGroupVersioner)
	if err != nil {
		return nil, err
	}
	if found := corevalidation.ValidateEventCreate(internal.(*core.Event), corev1.SchemeGroupVersion); len(found) > 0 {
		return nil, found.ToAggregate()
	}
	return object.(*corev1.Event), nil
}

// saw waits for an event of that reason and severity about a text.
func (a *apiServer) saw(n *node.Node, severity, reason string, about ...string) {
	n.Judge.Helper()
	n.Eventually("the event "+reason, func() error {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		if len(a.wrong) > 0 {
			n.Judge.Fatalf("the API server would refuse: %v", a.wrong)
		}
		for _, event := range a.events {
			all := event.Reason == reason && event.Type == severity && event.InvolvedObject.Name == "n1"
			for _, text := range about {
				all = all && strings.Contains(event.Message, text)
			}
			if all {
				return nil
			}
		}
		return fmt.Errorf("there are %+v", a.events)
	})
}

func (a *apiServer) set(answer int) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.answer = answer
}

func (a *apiServer) times() int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.asked
}
