package quotadecho

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
)

// Middleware asks quotad about each request before the next handler gets it, as
// client.Middleware(o) does.
func Middleware(client *quotad.Client, o quotad.MiddlewareOptions) echo.MiddlewareFunc {
	middleware := client.Middleware(o)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			admitted := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				err = next(c)
			})
			middleware(admitted).ServeHTTP(c.Response(), c.Request())
			return err
		}
	}
}
