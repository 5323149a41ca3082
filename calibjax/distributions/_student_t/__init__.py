"""Student t predictions of real numbers."""

from calibjax.distributions._student_t._student_t import StudentT
