package deploy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotad/quotad/internal/testenv"
)

// gateway is one of the gateways with what is shipped for it.
type gateway struct {
	name string
	// pkg is Debian's, which brings a program of this name; "" where traefikEnv names one. image is for machines without.
	pkg, image string
	// files are the shipped files, under the names that they have in the gateway's directory.
	files map[string]string
	// extra is what the gateway needs besides, as users have it from their package.
	extra map[string]string
	// listens, asks and serves are what the files say of where the gateway listens, where quotad is, and the API.
	listens, asks, serves string
	// slow are the times of the files after which quotad is taken for away.
	slow []string
	// open is the one edit that makes it fail open, as the files and README.md say it.
	open edit
	argv func(dir string) []string
	env  []string
}

// edit replaces text in the shipped files, where it must be.
type edit struct{ old, new string }

// slowAs is a time that no answer takes, however busy the machine: tests that are not about time put it in the place
// of those that are shipped.
const slowAs = "180s"

var nginx = gateway{
	name:  "nginx",
	pkg:   "nginx",
	image: "nginx:stable",
	files: map[string]string{
		"conf.d/quotad.conf":   "nginx/quotad.conf",
		"quotad-location.conf": "nginx/quotad-location.conf",
	},
	extra: map[string]string{"nginx.conf": `
daemon off;
pid nginx.pid;
error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	include conf.d/*.conf;
}
`},
	listens: "listen 80;",
	asks:    "server 127.0.0.1:8080;",
	serves:  "server 127.0.0.1:3000;",
	slow:    []string{"100ms;", "300ms;"},
	open:    edit{"return 403;\n    }\n\n    location @quotad_refused", "return 204;\n    }\n\n    location @quotad_refused"},
	argv: func(dir string) []string {
		argv := []string{"nginx", "-p", dir, "-c", filepath.Join(dir, "nginx.conf"), "-e", "stderr"}
		if os.Getuid() == 0 { // its workers must get into a directory of ours
			argv = append(argv, "-g", "user root;")
		}
		return argv
	},
}

var caddy = gateway{
	name:    "Caddy",
	pkg:     "caddy",
	image:   "caddy:2",
	files:   map[string]string{"Caddyfile": "caddy/Caddyfile"},
	listens: ":80 {",
	asks:    "reverse_proxy 127.0.0.1:8080 {",
	serves:  "reverse_proxy 127.0.0.1:3000 {",
	slow:    []string{" 100ms\n", " 300ms\n"},
	open:    edit{"import closed", "import api"},
	argv: func(dir string) []string {
		return []string{"caddy", "run", "--adapter", "caddyfile", "--config", filepath.Join(dir, "Caddyfile")}
	},
	env: []string{"XDG_DATA_HOME=.", "XDG_CONFIG_HOME=."},
}

var haproxy = gateway{
	name:    "HAProxy",
	pkg:     "haproxy",
	image:   "haproxy:lts",
	files:   map[string]string{"haproxy.cfg": "haproxy/haproxy.cfg", "quotad.lua": "haproxy/quotad.lua"},
	listens: "bind :80",
	asks:    "server quotad1 127.0.0.1:8080",
	serves:  "server api1 127.0.0.1:3000",
	slow:    []string{" 100ms\n", " 300ms\n"},
	open:    edit{"http-request return status 503", "# http-request return status 503"},
	argv: func(dir string) []string {
		return []string{"haproxy", "-db", "-f", filepath.Join(dir, "haproxy.cfg")}
	},
}

// traefik has no package, and takes too long to build for every run: it is tested where traefikEnv names its program, as
// "make traefik" does.
var traefik = gateway{
	name:    "Traefik",
	files:   map[string]string{"traefik.yml": "traefik/traefik.yml", "quotad.yml": "traefik/quotad.yml"},
	listens: `address: ":80"`,
	asks:    "url: http://127.0.0.1:8080",
	serves:  "url: http://127.0.0.1:3000",
	slow:    []string{" 100ms\n", " 300ms\n"},
	open:    edit{"service: quotad-closed   # fail closed", "service: quotad-open # fail closed"},
	argv: func(dir string) []string {
		return []string{os.Getenv(traefikEnv), "--configFile=" + filepath.Join(dir, "traefik.yml")}
	},
}

const traefikEnv = "QUOTAD_TEST_TRAEFIK"

// gateways are those that every run tests.
func gateways() []gateway {
	list := []gateway{nginx, caddy, haproxy}
	if os.Getenv(traefikEnv) != "" {
		list = append(list, traefik)
	}
	return list
}

// all are those that README.md tells of.
var all = []gateway{nginx, caddy, haproxy, traefik}

// variant is how a test changes the shipped files, besides addresses.
type variant struct {
	open    bool // fail open
	patient bool // with slowAs in the place of the times that are shipped
}

// configured are the files of a gateway for a directory and a port.
func (g gateway) configured(v variant, dir string, port int, quotadURL, apiURL string) (map[string]string, error) {
	to := func(line, from, url string) edit {
		return edit{line, strings.Replace(line, from, strings.TrimPrefix(url, "http://"), 1)}
	}
	edits := []edit{
		{g.listens, strings.Replace(g.listens, "80", fmt.Sprint(port), 1)},
		to(g.asks, "127.0.0.1:8080", quotadURL),
		to(g.serves, "127.0.0.1:3000", apiURL),
	}
	if v.open {
		edits = append(edits, g.open)
	}
	if v.patient {
		for _, s := range g.slow {
			edits = append(edits, edit{s, strings.Replace(s, strings.Trim(s, " ;\n"), slowAs, 1)})
		}
	}
	edits = append(edits, g.paths(dir)...)
	files := map[string]string{}
	for name, shipped := range g.files {
		content, err := os.ReadFile(shipped)
		if err != nil {
			return nil, err
		}
		files[name] = string(content)
	}
	for _, e := range edits {
		found := false
		for name, content := range files {
			found = found || strings.Contains(content, e.old)
			files[name] = strings.ReplaceAll(content, e.old, e.new)
		}
		if !found {
			return nil, fmt.Errorf("the files of %s do not say %q", g.name, e.old)
		}
	}
	for name, content := range g.extra {
		files[name] = content
	}
	return files, nil
}

// paths are the edits for what the files name by its place on the machine.
func (g gateway) paths(dir string) []edit {
	switch g.name {
	case haproxy.name: // sockets of this kind have no place, only a name, and that has to be this gateway's own
		return []edit{{"/etc/haproxy", dir}, {"abns@quotad", "abns@" + filepath.Base(dir)}}
	case traefik.name: // an address of loopback that nobody else has
		n := ids.Add(1)
		return []edit{{"/etc/traefik", dir}, {"127.0.0.1:8082", fmt.Sprintf("127.1.%d.%d:8082", n/250%250, n%250+1)}}
	default:
		return nil
	}
}

// start starts the gateway in front of an API.
func (g gateway) start(t testing.TB, v variant, quotadURL, apiURL string) *testenv.Server {
	t.Helper()
	return testenv.OwnProgram(t, testenv.Program{
		Name:    strings.ToLower(g.name),
		Package: g.pkg,
		Image:   g.image,
		Files: func(dir string, port int) map[string]string {
			files, err := g.configured(v, dir, port, quotadURL, apiURL)
			if err != nil {
				t.Error(err)
			}
			return files
		},
		Argv:  func(dir string, _ int) []string { return g.argv(dir) },
		Env:   g.env,
		Ready: routes,
	})
}

// routes is ready once the gateway answers and knows what to do with a call: one that takes connections before it has
// read its files knows no path.
func routes(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotFound {
		return errors.New(res.Status)
	}
	return nil
}

// world is a gateway with what is around it.
type world struct {
	gateway *testenv.Server
	quotad  *node
	api     *api
}

// build starts a world. options are the quotad's.
func (g gateway) build(t testing.TB, v variant, options ...string) *world {
	t.Helper()
	w := &world{api: startAPI(t), quotad: startQuotad(t, options...)}
	w.gateway = g.start(t, v, w.quotad.URL(), w.api.URL)
	return w
}

// in is the world for a subtest.
func (w world) in(t testing.TB) *world {
	w.quotad = &node{Server: w.quotad.Server, t: t}
	return &w
}
