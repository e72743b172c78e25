// Package quotadecho is the quotad middleware for echo v4.
//
// It adapts Client.Middleware of the package quotad, which says what becomes of a
// request, and of the headers, errors and failures; nothing of that is different
// here. Refusals are written as they are, without echo's error handler. Echo's
// Response is handed on, not wrapped.
//
// Register it with Use, behind a CORS middleware if there is one. Before routing
// (Pre) it works too.
//
// # Example
//
//	client, err := quotad.NewClient("http://quotad:8080", quotad.ClientOptions{})
//	…
//	e := echo.New()
//	e.Use(quotadecho.Middleware(client, quotad.MiddlewareOptions{}))
//	e.GET("/v1/exports/:id", func(c echo.Context) error {
//		d, _ := quotad.DecisionFrom(c.Request().Context())
//		return c.String(http.StatusOK, "for "+d.Tenant)
//	})
package quotadecho
