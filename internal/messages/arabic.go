package messages

import "github.com/quotad/quotad"

// arabic are the Arabic texts by code.
var arabic = map[quotad.Code]string{
	quotad.CodeAPIKeyRequired:       "يلزم مفتاح API: أرسله في الترويسة X-API-Key.",
	quotad.CodeInvalidAPIKey:        "مفتاح API غير صالح.",
	quotad.CodeAmbiguousCredentials: "أرسل وسيلة اعتماد واحدة فقط.",
	quotad.CodeInvalidCost:          "يجب أن تكون التكلفة عددًا صحيحًا من الوحدات، صفرًا أو أكثر.",
	quotad.CodeCostExceedsLimit:     "التكلفة أكبر مما يمكن أن يسمح به الحد في أي وقت.",
	quotad.CodeInvalidPath:          "المسار غير صالح.",
	quotad.CodeInvalidRequest:       "الطلب غير صالح.",
	quotad.CodeRouteNotAllowed:      "لا يُسمح لمفتاح API هذا باستدعاء مجموعة المسارات هذه.",
	quotad.CodeRateLimitExceeded:    "طلبات كثيرة جدًا: تم تجاوز الحد المسموح.",
	quotad.CodeQuotaExceeded:        "استُنفدت حصة هذه الفترة.",
	quotad.CodeLimiterUnavailable:   "خدمة تحديد المعدل غير متاحة. حاول مرة أخرى بعد قليل.",
	quotad.CodeStoreUnavailable:     "مخزن البيانات غير متاح. حاول مرة أخرى بعد قليل.",
	quotad.CodeUpstreamUnavailable:  "الخدمة خلف البوابة غير متاحة. حاول مرة أخرى بعد قليل.",
	quotad.CodeUpstreamTimeout:      "لم تُجب الخدمة خلف البوابة في الوقت المحدد.",
	quotad.CodeUnauthorized:         "يلزم رمز إدارة صالح: أرسله في الترويسة Authorization: Bearer.",
	quotad.CodeForbidden:            "دور رمز الإدارة هذا لا يسمح بذلك.",
	quotad.CodeNotFound:             "لا يوجد مورد كهذا.",
	quotad.CodeMethodNotAllowed:     "لا يستجيب هذا المورد لهذه الطريقة.",
	quotad.CodeExists:               "يوجد مورد بهذا الاسم بالفعل.",
	quotad.CodeInUse:                "المورد قيد الاستخدام.",
	quotad.CodeConflict:             "يتعارض الطلب مع حالة المورد.",
	quotad.CodePreconditionFailed:   "تغيّر المورد منذ قراءته.",
	quotad.CodePayloadTooLarge:      "متن الطلب كبير جدًا.",
	quotad.CodeUnsupportedMedia:     "نوع وسائط متن الطلب غير مدعوم.",
	quotad.CodeInvalidFields:        "بعض الحقول غير صالحة.",
	quotad.CodeIdempotencyMismatch:  "استُخدم مفتاح Idempotency-Key هذا لطلب آخر.",
	quotad.CodeInternal:             "حدث خطأ من جانبنا.",
}
